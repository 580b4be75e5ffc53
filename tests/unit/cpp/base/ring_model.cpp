// Model check of spsc_ring.h and wakeup.h, the very headers, under the C++ memory model: with the
// weak orders that x86 hardware never shows. Built where Relacy is installed (Debian: relacy-dev).
//
// std::atomic becomes Relacy's; the slots get a shadow that Relacy watches for races; the eventfd
// is a counter under a mutex, which orders what a system call orders.

// The order of these includes matters: Relacy's macros must not reach the standard library.
// clang-format off
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include <relacy/relacy.hpp>
#undef new
#undef delete

namespace std {
using rl::mo_acq_rel;
using rl::mo_acquire;
using rl::mo_relaxed;
using rl::mo_release;
using rl::mo_seq_cst;
template <class T>
struct relacy_atomic : rl::atomic<T> {
  relacy_atomic(T value = T{}) : rl::atomic<T>(value) {}
  static constexpr bool is_always_lock_free = true;
};
void* relacy_memcpy(void* to, const void* from, std::size_t n_bytes);
}  // namespace std

#define UNPACED_CHECK_THREADS 0
#define atomic relacy_atomic
#define memcpy relacy_memcpy
#include "base/wakeup.h"
#undef atomic
#undef memcpy
// clang-format on

namespace {

constexpr std::size_t kSlots = 2;

// The ring's storage is this array, so that a copy to or from a slot can be told from other copies.
struct Record {
  std::uint64_t number;
  static void* operator new[](std::size_t) { return slots; }
  static void operator delete[](void*) {}
  static std::uint64_t slots[kSlots];
};
std::uint64_t Record::slots[kSlots];
rl::var<std::uint64_t>* shadow_of_slots = nullptr;

rl::var<std::uint64_t>* shadow_of(const std::uint64_t* word) {
  const std::ptrdiff_t i = word - Record::slots;
  return i >= 0 && i < static_cast<std::ptrdiff_t>(kSlots) ? &shadow_of_slots[i] : nullptr;
}

rl::mutex* fd_mutex = nullptr;
rl::condition_variable* fd_readable = nullptr;
int fd_count = 0;

}  // namespace

void* std::relacy_memcpy(void* to, const void* from, std::size_t n_bytes) {
  for (std::size_t i = 0; i < n_bytes / sizeof(std::uint64_t); ++i) {
    const auto* source = static_cast<const std::uint64_t*>(from) + i;
    auto* target = static_cast<std::uint64_t*>(to) + i;
    rl::var<std::uint64_t>* source_shadow = shadow_of(source);
    rl::var<std::uint64_t>* target_shadow = shadow_of(target);
    const std::uint64_t value = source_shadow == nullptr ? *source : (*source_shadow)($).load();
    if (target_shadow == nullptr) {
      *target = value;
    } else {
      (*target_shadow)($).store(value);
    }
  }
  return to;
}

// In place of wakeup.cpp.
namespace unpaced {

Wakeup::Wakeup() : fd_(-1) {}
Wakeup::~Wakeup() = default;

void Wakeup::write_eventfd() noexcept {
  n_writes_.fetch_add(1, std::memory_order_relaxed);
  fd_mutex->lock($);
  ++fd_count;
  fd_readable->notify_all($);
  fd_mutex->unlock($);
}

void Wakeup::next_turn() noexcept { RL_ASSERT(false); }

void Wakeup::wait() noexcept {
  fd_mutex->lock($);
  while (fd_count == 0) fd_readable->wait(*fd_mutex, $);
  fd_count = 0;
  fd_mutex->unlock($);
  cancel_park();
}

}  // namespace unpaced

namespace {

// Thread 0 writes kRecords, thread 1 reads them and sleeps when it can. Relacy reports a data race,
// a deadlock (a lost wake-up), a livelock or a failed assertion.
template <std::uint64_t kRecords>
struct RingAndWakeup : rl::test_suite<RingAndWakeup<kRecords>, 2> {
  rl::var<std::uint64_t> shadow[kSlots];
  rl::mutex mutex;
  rl::condition_variable readable;
  std::unique_ptr<unpaced::SpscRing<Record>> ring;
  std::unique_ptr<unpaced::Wakeup> wakeup;
  std::uint64_t n_parks = 0;

  void before() {
    shadow_of_slots = shadow;
    for (auto& slot : shadow) slot($).store(~0ULL);
    fd_mutex = &mutex;
    fd_readable = &readable;
    fd_count = 0;
    n_parks = 0;
    ring = std::make_unique<unpaced::SpscRing<Record>>(kSlots);
    wakeup = std::make_unique<unpaced::Wakeup>();
  }

  void after() {
    RL_ASSERT(wakeup->n_writes() <= n_parks);
    ring.reset();
    wakeup.reset();
  }

  void thread(unsigned index) {
    if (index == 0) {
      write();
    } else {
      read();
    }
  }

  void write() {
    for (std::uint64_t next = 0; next < kRecords;) {
      if (ring->try_push(Record{next})) {
        ++next;
        wakeup->notify();
      } else {
        rl::yield(1, $);
      }
    }
  }

  void read() {
    Record record{};
    for (std::uint64_t next = 0; next < kRecords;) {
      if (!ring->try_pop(record)) {
        wakeup->prepare_park();
        ++n_parks;
        if (!ring->try_pop(record)) {
          wakeup->wait();
          continue;
        }
        wakeup->cancel_park();
      }
      RL_ASSERT(record.number == next);
      ++next;
    }
  }
};

}  // namespace

int main() {
  rl::test_params at_random;
  at_random.iteration_count = 200'000;
  const bool random_ok = rl::simulate<RingAndWakeup<4>>(at_random);
  // Every schedule with at most four preemptions.
  rl::test_params bounded;
  bounded.search_type = rl::sched_bound;
  bounded.context_bound = 4;
  bounded.execution_depth_limit = 2000;
  const bool bounded_ok = rl::simulate<RingAndWakeup<3>>(bounded);
  return random_ok && bounded_ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
