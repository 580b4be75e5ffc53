// Ring and Wakeup together, between threads: no wake-up is lost, whatever the timing, and a burst
// costs at most one write. A wait that outlives kPatience is a lost wake-up.
#include <sys/epoll.h>
#include <unistd.h>

#include <random>

#include "base/cpu_affinity.h"
#include "base/spsc_ring.h"
#include "base/wakeup.h"
#include "check.h"
#include "numbered_record.h"
#include "random_pause.h"

namespace wakeup_stress_test {
namespace {

using unpaced::SpscRing;
using unpaced::Wakeup;
using unpaced::test::NumberedRecord;
using unpaced::test::pause_at_random;

constexpr std::chrono::seconds kPatience{10};
// Rounds end then, too: where something else wants the same cores, each can take a turn of its.
constexpr std::chrono::seconds kLongEnough{20};

// Restricts the calling thread to one of the process's cores, counted round; undone at the end.
class PinnedToCore {
 public:
  explicit PinnedToCore(std::size_t index) : cores_(unpaced::allowed_cores()) {
    CHECK(unpaced::pin_calling_thread({&cores_[index % cores_.size()], 1}));
  }
  ~PinnedToCore() { CHECK(unpaced::pin_calling_thread(cores_)); }
  PinnedToCore(const PinnedToCore&) = delete;
  PinnedToCore& operator=(const PinnedToCore&) = delete;

 private:
  const std::vector<int> cores_;
};

// A ring with its wake-up, and the reader's side of the protocol.
struct Channel {
  explicit Channel(std::size_t capacity) : ring(capacity) {}

  SpscRing<NumberedRecord> ring;
  Wakeup wakeup;
  std::uint64_t n_parks = 0;  // reader only

  // Native reader: sleeps until at least one record is there; returns how many it took.
  std::size_t receive(NumberedRecord* out, std::size_t max) {
    for (;;) {
      if (const std::size_t n = ring.pop_many(out, max); n != 0) return n;
      wakeup.prepare_park();
      ++n_parks;
      if (const std::size_t n = ring.pop_many(out, max); n != 0) {
        wakeup.cancel_park();
        return n;
      }
      REQUIRE(wakeup.wait_for(kPatience));
    }
  }

  void send(std::uint64_t number) {
    while (!ring.try_push(NumberedRecord::of(number))) std::this_thread::yield();
    wakeup.notify();
  }
};

// The race itself, without sleeping: one side pushes and notifies, the other parks and looks again.
// Either it finds the record, or a write was made for it. The reader's delay is steered so that
// about half the rounds end either way: that holds both sides on the very instructions where they
// cross.
TEST(push_is_seen_or_notified) {
  constexpr std::uint64_t kRounds = 300'000 / kSanitizerSlowdown;
  SpscRing<std::uint64_t> ring(2);
  Wakeup wakeup;
  // Rounds begun by the reader and finished by the writer: release stores, acquire loads, partners
  // of each other.
  alignas(unpaced::kInterferenceBytes) std::atomic<std::uint64_t> n_begun{0};
  alignas(unpaced::kInterferenceBytes) std::atomic<std::uint64_t> n_done{0};
  std::atomic<bool> has_ended{false};  // published by the release of n_begun behind it
  // On cores of their own: the kernel likes to put a pair that waits for each other on one.
  std::thread writer([&] {
    const PinnedToCore pinned(0);
    std::mt19937_64 random(7);
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      for (int spins = 0; n_begun.load(std::memory_order_acquire) < round; ++spins) {
        if (spins > 1000) std::this_thread::yield();
      }
      if (has_ended.load(std::memory_order_relaxed)) return;
      unpaced::test::spin(random() % 8);
      REQUIRE(ring.try_push(round));
      wakeup.notify();
      n_done.store(round, std::memory_order_release);
    }
  });
  const PinnedToCore pinned(1);
  std::uint64_t n_found = 0;
  std::uint64_t n_notified = 0;
  std::uint64_t delay = 0;
  std::mt19937_64 random(8);
  const auto until = std::chrono::steady_clock::now() + kLongEnough;
  std::uint64_t n_rounds = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (round % 256 == 0 && std::chrono::steady_clock::now() > until) {
      has_ended.store(true, std::memory_order_relaxed);
      n_begun.store(round, std::memory_order_release);
      break;
    }
    n_rounds = round;
    const std::uint64_t n_writes_before = wakeup.n_writes();
    n_begun.store(round, std::memory_order_release);
    unpaced::test::spin(delay + random() % 32);
    wakeup.prepare_park();
    std::uint64_t value = 0;
    const bool found = ring.try_pop(value);
    for (int spins = 0; n_done.load(std::memory_order_acquire) < round; ++spins) {
      if (spins > 1000) std::this_thread::yield();
    }
    const bool notified = wakeup.n_writes() != n_writes_before;
    REQUIRE(found || notified);
    if (!found) REQUIRE(ring.try_pop(value));
    REQUIRE(value == round);
    n_found += found ? 1 : 0;
    n_notified += notified ? 1 : 0;
    if (!found) {
      ++delay;
    } else if (delay > 0) {
      --delay;
    }
    if (notified) wakeup.acknowledge();
    wakeup.cancel_park();
  }
  writer.join();
  std::printf("       rounds found %llu, notified %llu of %llu\n",
              static_cast<unsigned long long>(n_found), static_cast<unsigned long long>(n_notified),
              static_cast<unsigned long long>(n_rounds));
  // Both orders happened, or the test proves nothing. One core alone cannot show it.
  if (unpaced::allowed_cores().size() > 1) {
    CHECK(n_found > 0);
    CHECK(n_notified > 0);
  }
}

TEST(ping_pong_never_hangs) {
  constexpr std::uint64_t kRounds = 30'000 / kSanitizerSlowdown;
  Channel there(4);
  Channel back(4);
  std::thread echo([&] {
    std::mt19937_64 random(1);
    NumberedRecord record;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      REQUIRE(there.receive(&record, 1) == 1);
      REQUIRE(record.is(i));
      pause_at_random(random);
      back.send(i);
    }
  });
  std::mt19937_64 random(2);
  NumberedRecord record;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    pause_at_random(random);
    there.send(i);
    REQUIRE(back.receive(&record, 1) == 1);
    REQUIRE(record.is(i));
  }
  echo.join();
  CHECK(there.wakeup.n_writes() <= there.n_parks);
  CHECK(back.wakeup.n_writes() <= back.n_parks);
}

// The same with the sleep: the writer sends as soon as it sees the last record taken, the reader
// begins to park at that moment, steered so that it is late half of the time. A lost wake-up stops
// both.
TEST(record_that_arrives_during_parking_wakes) {
  constexpr std::uint64_t kRounds = 200'000 / kSanitizerSlowdown;
  Channel channel(4);
  // release, partner: the writer's acquire load.
  alignas(unpaced::kInterferenceBytes) std::atomic<std::uint64_t> n_taken{0};
  std::thread writer([&] {
    const PinnedToCore pinned(0);
    std::mt19937_64 random(9);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      for (int spins = 0; n_taken.load(std::memory_order_acquire) < round; ++spins) {
        if (spins > 1000) std::this_thread::yield();
      }
      unpaced::test::spin(random() % 8);
      channel.send(round);
    }
  });
  const PinnedToCore pinned(1);
  std::mt19937_64 random(10);
  std::uint64_t delay = 0;
  NumberedRecord record;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t n_parks_before = channel.n_parks;
    unpaced::test::spin(delay + random() % 32);
    REQUIRE(channel.receive(&record, 1) == 1);
    REQUIRE(record.is(round));
    if (channel.n_parks != n_parks_before) {
      ++delay;
    } else if (delay > 0) {
      --delay;
    }
    n_taken.store(round + 1, std::memory_order_release);
  }
  writer.join();
  CHECK(channel.wakeup.n_writes() <= channel.n_parks);
}

// Bursts of random length with one notify() each. Every write answers one park, and no burst makes
// two.
TEST(burst_costs_at_most_one_write) {
  constexpr std::uint64_t kBursts = 100'000 / kSanitizerSlowdown;
  constexpr std::size_t kMaxBurst = 16;
  Channel channel(64);
  std::uint64_t n_records = 0;
  {
    std::mt19937_64 lengths(3);
    for (std::uint64_t i = 0; i < kBursts; ++i) n_records += 1 + lengths() % kMaxBurst;
  }
  std::thread writer([&] {
    std::mt19937_64 lengths(3);
    std::mt19937_64 random(4);
    NumberedRecord burst[kMaxBurst];
    std::uint64_t next = 0;
    for (std::uint64_t i = 0; i < kBursts; ++i) {
      const std::size_t n = 1 + lengths() % kMaxBurst;
      for (std::size_t k = 0; k < n; ++k) burst[k] = NumberedRecord::of(next + k);
      const std::uint64_t n_writes_before = channel.wakeup.n_writes();
      for (std::size_t sent = 0; sent < n;) {
        sent += channel.ring.try_push_many(burst + sent, n - sent);
        if (sent < n) std::this_thread::yield();
      }
      channel.wakeup.notify();
      REQUIRE(channel.wakeup.n_writes() - n_writes_before <= 1);
      next += n;
      pause_at_random(random);
    }
  });
  NumberedRecord buffer[kMaxBurst];
  for (std::uint64_t next = 0; next < n_records;) {
    const std::size_t n = channel.receive(buffer, kMaxBurst);
    for (std::size_t k = 0; k < n; ++k) REQUIRE(buffer[k].is(next + k));
    next += n;
  }
  writer.join();
  CHECK(channel.wakeup.n_writes() <= channel.n_parks);
  CHECK(channel.wakeup.n_writes() <= kBursts);
  CHECK(channel.wakeup.n_writes() > 0);
}

// The asyncio reader's side, with epoll (level-triggered, as asyncio and libuv use it) for the
// loop.
TEST(event_loop_reader_never_hangs) {
  constexpr std::uint64_t kRecords = 100'000 / kSanitizerSlowdown;
  Channel channel(64);
  std::thread writer([&] {
    std::mt19937_64 random(5);
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      channel.send(i);
      pause_at_random(random);
    }
  });
  const int loop = ::epoll_create1(EPOLL_CLOEXEC);
  REQUIRE(loop >= 0);
  epoll_event interest{};
  interest.events = EPOLLIN;
  REQUIRE(::epoll_ctl(loop, EPOLL_CTL_ADD, channel.wakeup.fd(), &interest) == 0);
  constexpr int kPatienceMs =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count());
  std::uint64_t next = 0;
  std::uint64_t n_parks = 0;
  NumberedRecord buffer[8];
  const auto drain = [&] {
    std::uint64_t n_drained = 0;
    while (const std::size_t n = channel.ring.pop_many(buffer, 8)) {
      for (std::size_t k = 0; k < n; ++k) REQUIRE(buffer[k].is(next + k));
      next += n;
      n_drained += n;
    }
    return n_drained;
  };
  const auto drain_and_park = [&] {
    do {
      drain();
      channel.wakeup.prepare_park();
      ++n_parks;
    } while (drain() != 0);
  };
  for (drain_and_park(); next < kRecords; drain_and_park()) {
    epoll_event ready{};
    REQUIRE(::epoll_wait(loop, &ready, 1, kPatienceMs) == 1);
    channel.wakeup.acknowledge();
  }
  writer.join();
  ::close(loop);
  CHECK(channel.wakeup.n_writes() <= n_parks);
}

}  // namespace
}  // namespace wakeup_stress_test
