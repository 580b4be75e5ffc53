// Wakeup: when it writes, when it does not, and what a reader sees.
#include "base/wakeup.h"

#include <poll.h>
#include <pthread.h>

#include <csignal>

#include "base/spsc_ring.h"
#include "check.h"

namespace wakeup_test {
namespace {

using namespace std::chrono_literals;
using unpaced::SpscRing;
using unpaced::Wakeup;

bool is_readable(const Wakeup& wakeup) {
  pollfd entry{.fd = wakeup.fd(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1;
}

TEST(no_write_while_the_reader_is_awake) {
  Wakeup wakeup;
  for (int i = 0; i < 1000; ++i) wakeup.notify();
  CHECK_EQ(wakeup.n_writes(), 0U);
  CHECK(!is_readable(wakeup));
}

TEST(one_write_for_a_burst_to_a_parked_reader) {
  Wakeup wakeup;
  wakeup.prepare_park();
  for (int i = 0; i < 1000; ++i) wakeup.notify();
  CHECK_EQ(wakeup.n_writes(), 1U);
  CHECK(is_readable(wakeup));
  wakeup.acknowledge();
  CHECK(!is_readable(wakeup));
  for (int i = 0; i < 1000; ++i) wakeup.notify();
  CHECK_EQ(wakeup.n_writes(), 1U);
}

TEST(cancelled_park_is_not_woken) {
  Wakeup wakeup;
  wakeup.prepare_park();
  wakeup.cancel_park();
  wakeup.notify();
  CHECK_EQ(wakeup.n_writes(), 0U);
}

TEST(wake_up_that_crosses_a_cancel_is_harmless) {
  Wakeup wakeup;
  wakeup.prepare_park();
  wakeup.notify();
  wakeup.cancel_park();
  wakeup.prepare_park();
  CHECK(wakeup.wait_for(0ns));  // the stale one
  wakeup.notify();              // awake again: no write
  CHECK_EQ(wakeup.n_writes(), 1U);
  wakeup.prepare_park();
  CHECK(!wakeup.wait_for(1ms));
}

TEST(acknowledge_without_a_wake_up_does_not_block) {
  Wakeup wakeup;
  wakeup.acknowledge();
  wakeup.prepare_park();
  wakeup.acknowledge();
  wakeup.notify();
  CHECK_EQ(wakeup.n_writes(), 0U);
}

TEST(wait_for_keeps_its_timeout) {
  Wakeup wakeup;
  for (const auto timeout : {0ns, 100'000ns, 20'000'000ns}) {
    wakeup.prepare_park();
    const auto start = std::chrono::steady_clock::now();
    CHECK(!wakeup.wait_for(timeout));
    CHECK(std::chrono::steady_clock::now() - start >= timeout);
    wakeup.notify();  // a reader whose wait ended is not parked
  }
  CHECK_EQ(wakeup.n_writes(), 0U);
}

// Waits in a thread, under a rain of signals whose handler does not restart system calls.
void wait_through_signals(bool with_timeout) {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  struct sigaction before{};
  REQUIRE(::sigaction(SIGUSR1, &action, &before) == 0);
  Wakeup wakeup;
  std::atomic<bool> woken{false};
  std::thread reader([&] {
    wakeup.prepare_park();
    if (with_timeout) {
      CHECK(wakeup.wait_for(60s));
    } else {
      wakeup.wait();
    }
    // release, partner: the acquire loads below.
    woken.store(true, std::memory_order_release);
  });
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(1ms);
    ::pthread_kill(reader.native_handle(), SIGUSR1);
    CHECK(!woken.load(std::memory_order_acquire));
  }
  wakeup.notify();
  reader.join();
  CHECK(woken.load(std::memory_order_acquire));
  CHECK_EQ(wakeup.n_writes(), 1U);
  REQUIRE(::sigaction(SIGUSR1, &before, nullptr) == 0);
}

TEST(signals_do_not_end_a_wait) {
  wait_through_signals(false);
  wait_through_signals(true);
}

// A reader that does nothing for a while: the ring fills, the writer is refused and keeps its
// record, one write is made in all, and nothing is missing afterwards.
TEST(stopped_reader_pushes_back_and_loses_nothing) {
  constexpr std::uint64_t kRecords = 10'000;
  SpscRing<std::uint64_t> ring(64);
  Wakeup wakeup;
  std::atomic<std::uint64_t> n_refused{0};
  wakeup.prepare_park();
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRecords;) {
      if (ring.try_push(i)) {
        ++i;
      } else {
        // release, partner: the acquire loads below.
        n_refused.fetch_add(1, std::memory_order_release);
        std::this_thread::yield();
      }
      wakeup.notify();
    }
  });
  while (n_refused.load(std::memory_order_acquire) < 100) std::this_thread::yield();
  CHECK_EQ(ring.size_approx(), ring.capacity());
  CHECK_EQ(wakeup.n_writes(), 1U);
  std::uint64_t value = 0;
  for (std::uint64_t expected = 0; expected < kRecords;) {
    if (ring.try_pop(value)) {
      REQUIRE(value == expected);
      ++expected;
    } else {
      std::this_thread::yield();
    }
  }
  writer.join();
  CHECK_EQ(wakeup.n_writes(), 1U);  // the reader never parked again
}

// With a limit at a point in time, which costs one system call where nobody rings.
TEST(waiting_until_then_ends_then_or_with_a_wake_up) {
  using Clock = std::chrono::steady_clock;
  Wakeup wakeup;
  wakeup.prepare_park();
  const auto when = Clock::now() + std::chrono::milliseconds(5);
  CHECK(!wakeup.wait_until(when));
  CHECK(Clock::now() >= when);
  wakeup.notify();  // nobody is parked
  CHECK_EQ(wakeup.n_writes(), 0U);
  wakeup.prepare_park();
  wakeup.notify();
  CHECK(wakeup.wait_until(Clock::now() + std::chrono::hours(1)));
  // Nothing is left of it: the next one waits again.
  wakeup.prepare_park();
  CHECK(!wakeup.wait_until(Clock::now() + std::chrono::milliseconds(1)));
  CHECK_EQ(wakeup.n_writes(), 1U);
}

TEST(no_wake_up_is_lost_at_the_end_of_a_short_wait) {
  constexpr std::uint64_t kRecords = 20'000;
  SpscRing<std::uint64_t> ring(64);
  Wakeup wakeup;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRecords;) {
      if (ring.try_push(i)) {
        ++i;
        wakeup.notify();
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::uint64_t value = 0;
  std::uint64_t expected = 0;
  while (expected < kRecords) {
    while (ring.try_pop(value)) REQUIRE(value == expected++);
    wakeup.prepare_park();
    if (ring.size_approx() > 0) {
      wakeup.cancel_park();
    } else if (expected < kRecords && expected % 64 == 0) {
      // So long that a lost wake-up shows: the test's watchdog ends it.
      static_cast<void>(
          wakeup.wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1)));
    } else if (expected < kRecords) {
      static_cast<void>(
          wakeup.wait_until(std::chrono::steady_clock::now() + std::chrono::microseconds(1)));
    }
  }
  writer.join();
}

}  // namespace
}  // namespace wakeup_test
