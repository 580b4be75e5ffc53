#include "base/wakeup.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <system_error>

#include "base/futex.h"

namespace unpaced {
namespace {

using Clock = std::chrono::steady_clock;

int make_eventfd() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

// True: readable. False: the deadline has passed. No deadline: never false.
bool poll_until(int fd, std::optional<Clock::time_point> deadline) noexcept {
  for (;;) {
    timespec left{};
    if (deadline) {
      const auto ns =
          std::max<std::int64_t>(0, std::chrono::nanoseconds(*deadline - Clock::now()).count());
      left.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
      left.tv_nsec = static_cast<long>(ns % 1'000'000'000);  // NOLINT: timespec's own type
    }
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int n_ready = ::ppoll(&entry, 1, deadline ? &left : nullptr, nullptr);
    if (n_ready > 0) return true;
    if (n_ready == 0) return false;
    // EINTR: a signal, so look again. ENOMEM is the only other error an open descriptor can give,
    // and it passes.
  }
}

}  // namespace

Wakeup::Wakeup() : fd_(make_eventfd()) {}

Wakeup::~Wakeup() { ::close(fd_); }

void Wakeup::wait() noexcept {
  poll_until(fd_, std::nullopt);
  acknowledge();
}

bool Wakeup::wait_for(std::chrono::nanoseconds timeout) noexcept {
  const bool woken = poll_until(fd_, Clock::now() + timeout);
  // Also after a timeout: a wake-up may just have arrived, and the caller drains either way.
  acknowledge();
  return woken;
}

bool Wakeup::wait_until(Clock::time_point when) noexcept {
  if (!poll_until(fd_, when)) {
    // acq_rel, as in cancel_park(). Still up: nobody has written, there is nothing to clear.
    if (parked_.exchange(kAwake, std::memory_order_acq_rel) != kAwake) return false;
  }
  acknowledge();
  return true;
}

void Wakeup::clear() noexcept {
  std::uint64_t count = 0;
  // EAGAIN: nothing to clear.
  while (::read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

void Wakeup::acknowledge() noexcept {
  clear();
  // Up only if the wake-up was a stale one: taken down, it spares the writer a useless write.
  cancel_park();
}

void Wakeup::next_turn() noexcept {
  // relaxed: a statistic, orders nothing.
  n_writes_.fetch_add(1, std::memory_order_relaxed);
  // release: partner turn().
  turn_.fetch_add(1, std::memory_order_release);
  futex_wake(turn_);
}

void Wakeup::wait_turn(std::uint32_t turn) noexcept {
  // acquire: partner next_turn().
  while (turn_.load(std::memory_order_acquire) == turn) futex_wait(turn_, turn);
}

void Wakeup::write_eventfd() noexcept {
  // relaxed: a statistic, orders nothing.
  n_writes_.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t one = 1;
  // EAGAIN: the counter is at its maximum, hence readable, hence the reader wakes anyway.
  while (::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace unpaced
