// Waiting for a 32-bit word to change, with a limit: what std::atomic::wait lacks.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace unpaced {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Returns when the word is no longer `seen`, when somebody wakes it, when the limit is over, or for
// no reason at all: look at the word again.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                       std::chrono::nanoseconds limit) noexcept {
  timespec left{};
  left.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  left.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);  // NOLINT: timespec's own type
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &left, nullptr, 0);
}

inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace unpaced
