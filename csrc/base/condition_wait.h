// Waiting for a condition variable without a limit.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <mutex>

namespace unpaced {

// condition.wait(lock, holds), by the C library: the member function of GCC 12 and later asks for
// a libstdc++ as new (GLIBCXX_3.4.30), and the wheel shall run where GCC 11's is installed, which
// has all the rest (docs/releasing.md).
template <class Holds>
void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                const Holds& holds) {
  while (!holds()) pthread_cond_wait(condition.native_handle(), lock.mutex()->native_handle());
}

}  // namespace unpaced
