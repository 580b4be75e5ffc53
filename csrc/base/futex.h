// Waiting for a 32-bit word to change, with a limit, which std::atomic::wait lacks; and for a
// condition variable without one, in a way that a C++ library before GCC 12's knows.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <mutex>

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

// condition.wait(lock, holds), by the C library: the member function of GCC 12 and later asks for
// a libstdc++ as new (GLIBCXX_3.4.30), and the wheel shall run where GCC 11's is installed, which
// has all the rest (docs/releasing.md).
template <class Holds>
void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                const Holds& holds) {
  while (!holds()) pthread_cond_wait(condition.native_handle(), lock.mutex()->native_handle());
}

}  // namespace unpaced
