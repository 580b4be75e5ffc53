// Delays that sweep one thread's action across the other's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

namespace unpaced::test {

// About a nanosecond a turn. The signal fence is a compiler barrier: the loop is not optimised
// away.
inline void spin(std::uint64_t n_turns) noexcept {
  for (std::uint64_t i = 0; i < n_turns; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
}

// Mostly nothing or up to a few microseconds; once in about a thousand calls up to 0.2 ms asleep,
// once in a thousand the rest of the time slice.
inline void pause_at_random(std::mt19937_64& random) {
  const std::uint64_t dice = random() % 1024;
  if (dice == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  if (dice == 1) std::this_thread::yield();
  if (dice < 256) spin(dice % 64 * (random() % 32));
}

}  // namespace unpaced::test
