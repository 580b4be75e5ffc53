// Wakes the one reader of a ring when it sleeps, and costs no system call when it does not.
//
// The reader parks before it sleeps; the writer, after its push, takes the parked flag down and
// writes the eventfd only if it was up. So a burst costs at most one write, however many records it
// has.
//
//   writer: push...; notify();
//   native reader:  for (;;) { drain; prepare_park(); drain again;
//                              if (found something) { cancel_park(); continue; }  wait(); }
//   asyncio reader: on readable(fd): acknowledge(); drain; prepare_park(); drain again;
//                   if (found something) { cancel_park(); drain again... } else return.
//   reader beside an asyncio reader, whose eventfd is not to wake for its records:
//                   for (;;) { const auto seen = turn(); drain; prepare_park_on_turn(); drain
//                   again;
//                              if (found something) { cancel_park(); continue; } wait_turn(seen); }
//
// No wake-up is lost. notify() and prepare_park() are both read-modify-writes of parked_, so one
// comes first. Park first: notify() reads true and writes the eventfd. Notify first: prepare_park()
// reads what notify() wrote, or what a later read-modify-write made of it, hence synchronises with
// it, and the drain that follows sees the push that precedes notify(). This is why the flag is
// never changed by a plain store: that would cut the chain. It needs no stand-alone fence, which
// ThreadSanitizer could not model.
//
// Sleeping may end without a record (a wake-up that crossed cancel_park()): the reader just parks
// again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/spsc_ring.h"

namespace unpaced {

class Wakeup {
 public:
  // Throws std::system_error when the process has no descriptor left.
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  // Readable while a wake-up is unacknowledged. Non-blocking, close-on-exec, owned by this object.
  [[nodiscard]] int fd() const noexcept { return fd_; }

  // Writer, after its push(es). A system call only if the reader is parked.
  void notify() noexcept {
    // acq_rel, partner prepare_park(): release orders our push before it, acquire keeps the write
    // below behind it.
    switch (parked_.exchange(kAwake, std::memory_order_acq_rel)) {
      case kOnDescriptor:
        write_eventfd();
        break;
      case kOnTurn:
        next_turn();
        break;
      default:
        break;
    }
  }

  // Reader: announces that it will sleep unless the drain that must follow finds something.
  void prepare_park() noexcept {
    // acq_rel, partner notify(): acquire lets the next drain see every push whose notify() came
    // first.
    parked_.exchange(kOnDescriptor, std::memory_order_acq_rel);
  }

  // The same, for one that will sleep in wait_turn().
  void prepare_park_on_turn() noexcept {
    // acq_rel, as in prepare_park().
    parked_.exchange(kOnTurn, std::memory_order_acq_rel);
  }

  // Reader: it stays awake after all.
  void cancel_park() noexcept {
    // acq_rel and a read-modify-write for the sake of the chain described above; partner notify().
    parked_.exchange(kAwake, std::memory_order_acq_rel);
  }

  // Native reader, parked: sleeps until notify(). Returns unparked, with the eventfd cleared.
  void wait() noexcept;
  // The same, at most `timeout` long. False: it timed out.
  bool wait_for(std::chrono::nanoseconds timeout) noexcept;
  // Native reader, parked: sleeps until then at most, with one system call where nobody wakes it.
  // Returns unparked; false: it timed out.
  bool wait_until(std::chrono::steady_clock::time_point when) noexcept;

  // Asyncio reader, after the descriptor became readable: clears it. Returns unparked.
  void acknowledge() noexcept;

  // Any thread: clears the descriptor and leaves everything else as it is.
  void clear() noexcept;
  // Any thread: wakes an asyncio reader, whatever it has announced.
  void ring() noexcept { write_eventfd(); }
  // Any thread: wakes who sleeps in wait_turn(), whatever it has announced.
  void next_turn() noexcept;
  // What wait_turn() is to be given: read before the reader looks whether there is news.
  [[nodiscard]] std::uint32_t turn() const noexcept {
    // acquire: partner next_turn(), whose caller's stores are there then.
    return turn_.load(std::memory_order_acquire);
  }
  // Sleeps while it is that turn.
  void wait_turn(std::uint32_t turn) noexcept;

  // Any thread: system calls that woke somebody, since construction.
  [[nodiscard]] std::uint64_t n_writes() const noexcept {
    // relaxed: a statistic, orders nothing.
    return n_writes_.load(std::memory_order_relaxed);
  }

 private:
  // What the reader has announced: numbers, as the model of ring_model.cpp knows them.
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kOnDescriptor = 1;
  static constexpr std::uint32_t kOnTurn = 2;

  void write_eventfd() noexcept;

  const int fd_;
  // Its own line: the writer takes it on every notify(), the reader only when it parks.
  alignas(kInterferenceBytes) std::atomic<std::uint32_t> parked_{kAwake};
  std::atomic<std::uint32_t> turn_{0};
  alignas(kInterferenceBytes) std::atomic<std::uint64_t> n_writes_{0};
};

}  // namespace unpaced
