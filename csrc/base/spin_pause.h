// What a loop that spins for news does between two looks.
#pragma once

#include <atomic>

namespace unpaced {

inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // Not `yield`: it does nothing on cores without hardware threads, which most are.
  __asm__ volatile("isb" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace unpaced
