// The thread that owns the model: drain commands, seat waiting requests, step, publish. It never
// touches Python, and while it decodes it makes no system call but the wake-up of its reader.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/spsc_ring.h"
#include "base/wakeup.h"
#include "decode/command_nap.h"
#include "decode/counters.h"
#include "decode/engine_lost.h"
#include "decode/event_publisher.h"
#include "decode/slot_keeper.h"
#include "decode/stepper.h"
#include "request/records.h"
#include "slots/request_queue.h"
#include "slots/slot.h"
#include "slots/slot_action.h"

namespace unpaced {

enum class EngineState : std::uint8_t { kNew = 0, kLoading, kReady, kFailed, kStopped };

struct DecodeThreadOptions {
  std::int32_t n_slots = 1;
  std::int32_t n_waiting_max = 64;  // requests submitted but not yet in a slot
  std::int32_t n_actions_max = 16;  // slot actions submitted but not yet done
  float slot_similarity = 0.1F;     // see choose_slot
  SlotKeeperOptions keeper;
  std::size_t n_events = 4096;  // capacity of the token ring, a power of two
  // Tokens that come faster than this share a wake-up of the front end. Microseconds; 0: every step
  // wakes it.
  std::int64_t wake_interval_us = 0;
  // An abort within ggml, on any thread but the front end's, waits so long for the front end, which
  // tells the clients and ends the process; not so long for one that does not call abandon().
  std::chrono::microseconds abort_grace = std::chrono::seconds(20);
  std::vector<int> cores;  // to pin to; empty: not pinned
};

class DecodeThread {
 public:
  using StepperFactory = std::function<std::unique_ptr<Stepper>()>;

  explicit DecodeThread(const DecodeThreadOptions& options);
  ~DecodeThread();  // stop()
  DecodeThread(const DecodeThread&) = delete;
  DecodeThread& operator=(const DecodeThread&) = delete;

  // Front end only. Runs `make_stepper` (which loads the model) on the new thread; its exception
  // becomes state kFailed and error(), and is_lost() where it was EngineLost.
  void start(StepperFactory make_stepper);

  // Front end only. False: the command ring is full, or the engine is not ready; the spec stays the
  // caller's. True: the spec is on loan until the request's kFinished event, which is sure to come
  // unless the engine is stopped first.
  [[nodiscard]] bool submit(RequestSpec* spec) noexcept;
  // Front end only, likewise. The action waits until its slot is idle; nobody else gets the slot
  // before. False: too many wait, or the engine is not ready.
  [[nodiscard]] bool submit(SlotAction* action) noexcept;
  // Front end only. An unknown or finished id is ignored. False: the command ring is full, try
  // again.
  [[nodiscard]] bool cancel(RequestId id) noexcept;

  // Front end only. A submit is about to come: an idle decode thread that has a core of its own
  // wakes up and waits for it there, for a millisecond at most. Waking up takes up to a tenth of
  // that, which then passes beside what is left to do before the submit.
  void expect() noexcept;

  // Front end only. Up to `max` events in order.
  [[nodiscard]] std::size_t drain(TokenEvent* out, std::size_t max) noexcept;
  // Another thread drains from here on; what orders the two is the caller's.
  void change_reader() noexcept { events_.forget_reader(); }
  [[nodiscard]] std::size_t n_events_approx() const noexcept { return events_.size_approx(); }
  // Any thread. The most events that ever waited for the front end, and how many could.
  [[nodiscard]] std::size_t n_events_most() const noexcept { return n_events_most_.get(); }
  [[nodiscard]] std::size_t n_events_max() const noexcept { return events_.capacity(); }
  // Any thread. Processor time that the decode thread has used; 0 unless it runs.
  [[nodiscard]] std::int64_t cpu_us() const noexcept;
  // Readable when there are events or the state changed. The reader's protocol: see wakeup.h.
  [[nodiscard]] Wakeup& reader_wakeup() noexcept { return reader_wakeup_; }

  // Any thread but the decode thread. Ends every request, joins, frees the model. Idempotent.
  void stop() noexcept;
  // As stop(), but waits no longer than `limit`. False: the thread is still at work, and may be for
  // ever.
  [[nodiscard]] bool stop_within(std::chrono::nanoseconds limit) noexcept;
  // Front end only. The thread is given up, whatever it hangs in: state() is kFailed from here on,
  // nothing waits for it any more. True: it may still run, so that neither this object nor what is
  // on loan may ever be freed.
  bool abandon(const char* why) noexcept;

  // Any thread. Tokens that the slot's KV held after the last step; 0 for a slot there is not.
  [[nodiscard]] std::int32_t n_cells(std::int32_t slot) const noexcept;
  // Any thread. Those of them that other sequences had as well.
  [[nodiscard]] std::int32_t n_cells_shared(std::int32_t slot) const noexcept;
  // Any thread.
  [[nodiscard]] EngineState state() const noexcept;
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  // Decode thread only: it is the writer.
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  // Microseconds since the loop last moved; 0 while it sleeps for want of work.
  [[nodiscard]] std::int64_t heartbeat_age_us() const noexcept;
  // Microseconds since a test of the GPU's kernels began while the model loads; 0: none runs.
  [[nodiscard]] std::int64_t gpu_test_age_us() const noexcept;
  // Whether the driver compiles kernels in such a test.
  [[nodiscard]] bool gpu_test_compiles() const noexcept {
    return counters_.gpu_test_compiles.get() != 0;
  }
  // After state kFailed: the thread has left behind what cannot be freed.
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }
  // Any thread. Another number whenever the thread has moved, within a long step too; -1 while it
  // has nothing to do.
  [[nodiscard]] std::int64_t progress() const noexcept;
  // True once stop() was called: the factory and long prefills look at it to give up early.
  [[nodiscard]] const std::atomic<bool>& stop_flag() const noexcept { return stop_; }
  // After state kFailed or a kException finish: what went wrong. Front end only.
  [[nodiscard]] std::string error() const;
  // Cells a slot has; 0 before kReady.
  [[nodiscard]] std::int32_t n_ctx() const noexcept {
    return n_ctx_.load(std::memory_order_acquire);
  }

 private:
  void run(const StepperFactory& make_stepper) noexcept;
  void loop();
  // From the front end's thread; false: the ring is full.
  bool send(const Command& command) noexcept;
  void drain_commands() noexcept;
  void on_cancel(RequestId id) noexcept;
  void run_actions() noexcept;
  void act(Slot& slot, SlotAction& action) noexcept;
  void admit() noexcept;
  void begin(const SlotChoice& choice, RequestSpec* spec) noexcept;
  // Requests whose slot is ready begin.
  void seat_ready() noexcept;
  // Requests get the prefixes that they wait for.
  void share_prefixes() noexcept;
  // Slots' states move on, for a turn. True: a slot is free again.
  bool tend_states() noexcept;
  // Slot actions that took turns and are over. False: there is none.
  bool end_actions(FinishReason reason) noexcept;
  // The slot's request ends by an exception.
  void fail(Slot& slot, const char* what) noexcept;
  void publish_cells() noexcept;
  void publish_shared_cells() noexcept;
  // Cells of the slot that other sequences have as well.
  [[nodiscard]] std::int32_t n_shared(const Slot& slot) const noexcept;
  void settle() noexcept;
  void step() noexcept;
  // True if the reader may learn of this step's tokens together with the next step's: that one is
  // expected to end within the wake interval.
  [[nodiscard]] bool may_share_wakeup(std::int64_t step_begin_us) noexcept;
  // decode_thread_life.cpp
  void park() noexcept;
  // Nothing has come for so long: a piece of work for later requests. False: there is none.
  [[nodiscard]] bool use_rest(std::int64_t rest_us);
  // Waits awake for what is expected. False: nothing was, or it did not come.
  [[nodiscard]] bool await_expected() noexcept;
  void fail_active(const char* what) noexcept;
  // Ends whatever there is with kException; the loop ends too, and nothing is freed.
  void lose(const char* what) noexcept;
  // False: the stepper is lost.
  bool forget(Slot& slot) noexcept;
  // Calls the stepper. What it throws ends the engine if it is EngineLost, else it is for `fail`.
  template <class Work, class Fail>
  void guard(Work work, Fail fail) noexcept;
  void finish_all(FinishReason reason) noexcept;
  void record_error(const char* what) noexcept;
  [[nodiscard]] std::int32_t n_active() const noexcept;
  // A step would compute something.
  [[nodiscard]] bool can_step() const noexcept;
  static int describe_for_abort(const void* self, char* text, int size);
  static void hold_abort(void* self, const char* message);

  static constexpr clockid_t kNoClock = CLOCK_MONOTONIC;  // no thread's
  const DecodeThreadOptions options_;
  SpscRing<Command> commands_;
  SpscRing<TokenEvent> events_;
  Counter n_events_most_;  // the front end writes it
  std::atomic<clockid_t> cpu_clock_{kNoClock};
  Wakeup command_wakeup_;  // reader: decode thread
  Wakeup reader_wakeup_;   // reader: front end
  Wakeup space_wakeup_;    // reader: decode thread, when events_ is full
  Counters counters_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<std::int64_t> expected_until_us_{0};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> has_aborted_{false};  // some thread, which then never goes on
  std::atomic<std::uint32_t> ended_{0};   // 1: the thread's last act; a futex
  std::atomic<EngineState> state_{EngineState::kNew};
  std::atomic<std::int32_t> n_ctx_{0};
  EventPublisher publisher_;
  std::vector<Slot> slots_;
  RequestQueue waiting_;
  SlotKeeper keeper_;
  std::vector<SlotAction*> actions_;       // those whose slot is busy, in order
  std::vector<Counter> n_slot_cells_;      // by slot id
  std::vector<Counter> n_slot_shared_;     // by slot id: of them, those that others have as well
  std::vector<PrefixIndex::Held> shared_;  // scratch, by slot
  // Of the index that n_slot_shared_ tells of, and how many slots were active.
  std::uint64_t shared_version_ = 0;
  std::int32_t shared_by_active_ = 0;
  CommandNap nap_;
  std::int64_t last_wakeup_us_ = 0;
  std::int64_t idle_since_us_ = 0;    // 0: it has stepped since
  std::atomic<bool> is_lost_{false};  // written before state_
  std::unique_ptr<Stepper> stepper_;
  mutable std::atomic_flag error_lock_;  // taken only where something has already gone wrong
  std::string error_;
  std::thread::id front_end_;
  std::mutex life_mutex_;  // guards thread_ once it runs
  std::thread thread_;
};

template <class Work, class Fail>
void DecodeThread::guard(Work work, Fail fail) noexcept {
  try {
    work();
  } catch (const EngineLost& e) {
    lose(e.what());
  } catch (const std::exception& e) {
    fail(e.what());
  } catch (...) {
    fail("unknown exception");
  }
}

}  // namespace unpaced
