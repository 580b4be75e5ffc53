// Single-producer single-consumer ring of plain records.
//
// Exactly one thread (the writer) calls try_push*, exactly one thread (the reader) calls try_pop
// and pop_many; any other use is invalid, and debug builds abort on it. A full ring refuses the
// record: the writer keeps it and tries again later. Nothing is ever overwritten or dropped.
//
// head_ and tail_ count records popped and pushed since construction and never wrap (2^64 records);
// the slot of record i is i & mask_. So full (tail - head == capacity) and empty (tail == head)
// differ without a slack slot. Each side keeps its own last reading of the other's counter and
// looks again only when that reading says full or empty: in the steady state a push or pop touches
// no foreign cache line other than the record's.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>

#ifndef UNPACED_CHECK_THREADS
#ifdef NDEBUG
#define UNPACED_CHECK_THREADS 0
#else
#define UNPACED_CHECK_THREADS 1
#endif
#endif

namespace unpaced {

// Two lines, not one: x86 prefetches cache lines in adjacent pairs, so neighbours still interfere.
inline constexpr std::size_t kInterferenceBytes = 128;

template <class T>
class SpscRing {
  static_assert(std::is_trivially_copyable_v<T>, "records are copied as bytes");
  static_assert(std::is_trivially_destructible_v<T>);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

 public:
  // Takes all memory and touches it, so that no later call allocates or faults a page in. Throws
  // std::invalid_argument unless `capacity` is a power of two.
  explicit SpscRing(std::size_t capacity)
      : mask_(capacity - 1),
        slots_(std::has_single_bit(capacity)
                   ? std::make_unique<T[]>(capacity)
                   : throw std::invalid_argument("SpscRing: capacity must be a power of two")) {}

  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Writer only. False: the ring is full and nothing was written.
  [[nodiscard]] bool try_push(const T& record) noexcept { return try_push_many(&record, 1) == 1; }

  // Writer only. Publishes the first k = min(n, free) records at once, in order; returns k.
  [[nodiscard]] std::size_t try_push_many(const T* records, std::size_t n) noexcept {
    check_thread(writer_thread_);
    // relaxed: only this thread writes tail_.
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (capacity() - (tail - head_seen_) < n) {
      // acquire: pairs with the release store of head_ in pop_many, so that the reader has finished
      // copying out of the slots we are about to overwrite.
      head_seen_ = head_.load(std::memory_order_acquire);
    }
    n = std::min<std::size_t>(n, capacity() - (tail - head_seen_));
    if (n == 0) return 0;
    const std::size_t first = tail & mask_;
    const std::size_t n_first = std::min(n, capacity() - first);
    copy(&slots_[first], records, n_first);
    copy(&slots_[0], records + n_first, n - n_first);
    // release: pairs with the acquire load of tail_ in pop_many; the records are complete before
    // they count.
    tail_.store(tail + n, std::memory_order_release);
    return n;
  }

  // Reader only. False: the ring is empty and `out` is untouched.
  [[nodiscard]] bool try_pop(T& out) noexcept { return pop_many(&out, 1) == 1; }

  // Reader only. Moves up to `max` records, oldest first, to `out`; returns how many.
  [[nodiscard]] std::size_t pop_many(T* out, std::size_t max) noexcept {
    check_thread(reader_thread_);
    // relaxed: only this thread writes head_.
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (tail_seen_ - head < max) {
      // acquire: pairs with the release store of tail_ in try_push_many, so that the records
      // counted are complete.
      tail_seen_ = tail_.load(std::memory_order_acquire);
    }
    const std::size_t n = std::min<std::size_t>(max, tail_seen_ - head);
    if (n == 0) return 0;
    const std::size_t first = head & mask_;
    const std::size_t n_first = std::min(n, capacity() - first);
    copy(out, &slots_[first], n_first);
    copy(out + n_first, &slots_[0], n - n_first);
    // release: pairs with the acquire load of head_ in try_push_many; our copies are done before
    // the slots become free.
    head_.store(head + n, std::memory_order_release);
    return n;
  }

  // Any thread; exact only when both sides are quiet. Never more than capacity().
  [[nodiscard]] std::size_t size_approx() const noexcept {
    // acquire on head_ (partner: pop_many) keeps the load of tail_ behind it: tail >= head then.
    // relaxed on tail_: no record is read on its account.
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    return std::min<std::size_t>(tail - head, capacity());
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

  // Lets another thread take over the reader's side, with a happens-before edge from the last use
  // to the next one.
  void forget_reader() noexcept { reader_thread_ = std::thread::id{}; }

  // Lets another thread take over either side. Only while neither side is in use and with a
  // happens-before edge to the next use (thread start or join).
  void forget_threads() noexcept { writer_thread_ = reader_thread_ = std::thread::id{}; }

 private:
  static void copy(T* to, const T* from, std::size_t n) noexcept {
    if (n != 0) std::memcpy(to, from, n * sizeof(T));
  }

  // Each side has its own `owner`, so a correct program has no race on it. Debug builds only.
  static void check_thread([[maybe_unused]] std::thread::id& owner) noexcept {
    if constexpr (UNPACED_CHECK_THREADS) {
      if (owner == std::thread::id{}) owner = std::this_thread::get_id();
      if (owner != std::this_thread::get_id()) {
        std::fputs("SpscRing: a second thread used one side of the ring\n", stderr);
        std::abort();
      }
    }
  }

  const std::size_t mask_;
  const std::unique_ptr<T[]> slots_;
  alignas(kInterferenceBytes) std::atomic<std::uint64_t> tail_{0};  // written by the writer
  std::uint64_t head_seen_ = 0;                                     // writer only
  std::thread::id writer_thread_;
  alignas(kInterferenceBytes) std::atomic<std::uint64_t> head_{0};  // written by the reader
  std::uint64_t tail_seen_ = 0;                                     // reader only
  std::thread::id reader_thread_;
};

}  // namespace unpaced
