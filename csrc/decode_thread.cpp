#include "decode_thread.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <exception>

#include "common_prefix.h"
#include "cpu_affinity.h"
#include "heap_reserve.h"
#include "log_sink.h"

namespace unpaced {
namespace {

// Many times what llama_decode was seen to need at once beside its buffers.
constexpr std::size_t kHeapBytes = 16UL << 20U;

// Room for every request that can be submitted and a cancel for each.
std::size_t command_capacity(const DecodeThreadOptions& options) {
  return std::bit_ceil(2 * static_cast<std::size_t>(options.n_slots + options.n_waiting_max) + 2);
}

}  // namespace

DecodeThread::DecodeThread(const DecodeThreadOptions& options)
    : options_(options),
      commands_(command_capacity(options)),
      events_(options.n_events),
      publisher_(events_, reader_wakeup_, space_wakeup_, stop_, counters_),
      slots_(static_cast<std::size_t>(options.n_slots)),
      waiting_(static_cast<std::size_t>(options.n_slots + options.n_waiting_max)) {
  for (std::int32_t i = 0; i < options.n_slots; ++i) slots_[static_cast<std::size_t>(i)].id = i;
}

DecodeThread::~DecodeThread() { stop(); }

void DecodeThread::start(StepperFactory make_stepper) {
  state_.store(EngineState::kLoading, std::memory_order_release);
  thread_ = std::thread([this, make = std::move(make_stepper)] { run(make); });
}

bool DecodeThread::submit(RequestSpec* spec) noexcept {
  if (state() != EngineState::kReady) return false;
  if (!commands_.try_push({.request_id = spec->id, .spec = spec, .kind = CommandKind::kSubmit})) {
    return false;
  }
  command_wakeup_.notify();
  return true;
}

bool DecodeThread::cancel(RequestId id) noexcept {
  if (!commands_.try_push({.request_id = id, .spec = nullptr, .kind = CommandKind::kCancel})) {
    return false;
  }
  command_wakeup_.notify();
  return true;
}

std::size_t DecodeThread::drain(TokenEvent* out, std::size_t max) noexcept {
  const std::size_t n = events_.pop_many(out, max);
  if (n > 0) space_wakeup_.notify();
  return n;
}

void DecodeThread::stop() noexcept {
  // release: pairs with the acquire loads in loop() and EventPublisher::push().
  stop_.store(true, std::memory_order_release);
  command_wakeup_.notify();
  space_wakeup_.notify();
  if (thread_.joinable()) thread_.join();
}

EngineState DecodeThread::state() const noexcept {
  // acquire: what the thread wrote before it changed the state (n_ctx, error) is visible.
  return state_.load(std::memory_order_acquire);
}

std::int64_t DecodeThread::heartbeat_age_us() const noexcept {
  if (state() != EngineState::kReady) return 0;
  // acquire: pairs with park(), which stamps the heartbeat before it stops sleeping.
  if (sleeping_.load(std::memory_order_acquire)) return 0;
  const auto last = static_cast<std::int64_t>(counters_.last_step_us.get());
  return std::max<std::int64_t>(0, steady_us() - last);
}

std::string DecodeThread::error() const {
  while (error_lock_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  std::string copy = error_;
  error_lock_.clear(std::memory_order_release);
  return copy;
}

void DecodeThread::record_error(const char* what) noexcept {
  while (error_lock_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  try {
    error_ = what;
  } catch (...) {
    error_.clear();  // out of memory: the finish reason still tells that it failed
  }
  error_lock_.clear(std::memory_order_release);
}

void DecodeThread::run(const StepperFactory& make_stepper) noexcept {
  // Inherited by the threads that the factory makes: ggml's workers.
  pthread_setname_np(pthread_self(), "ggml");
  try {
    stepper_ = make_stepper();
    for (Slot& slot : slots_) slot.cells.reserve(static_cast<std::size_t>(stepper_->n_ctx()) + 1);
    pthread_setname_np(pthread_self(), "decode");
    reserve_heap(kHeapBytes);
    // After the factory: threads it made must not inherit this one's single core.
    if (!options_.cores.empty() && !pin_calling_thread(options_.cores)) {
      std::fputs("unpaced: the decode thread could not be pinned\n", stderr);
    }
    counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
    n_ctx_.store(stepper_->n_ctx(), std::memory_order_release);
    set_abort_context(&DecodeThread::describe_for_abort, this);
    state_.store(EngineState::kReady, std::memory_order_release);
    publisher_.flush();
    loop();
    set_abort_context(nullptr, nullptr);
    stepper_.reset();
    state_.store(EngineState::kStopped, std::memory_order_release);
  } catch (const std::exception& e) {
    record_error(e.what());
    stepper_.reset();
    state_.store(EngineState::kFailed, std::memory_order_release);
  } catch (...) {
    record_error("unknown exception");
    stepper_.reset();
    state_.store(EngineState::kFailed, std::memory_order_release);
  }
  publisher_.flush();
}

void DecodeThread::loop() {
  // acquire: pairs with stop().
  while (!stop_.load(std::memory_order_acquire)) {
    drain_commands();
    admit();
    if (n_active() > 0) {
      step();
    } else {
      publisher_.flush();
      park();
    }
  }
  drain_commands();
  finish_all(FinishReason::kStopped);
}

void DecodeThread::drain_commands() noexcept {
  Command command{};
  while (commands_.try_pop(command)) {
    switch (command.kind) {
      case CommandKind::kSubmit:
        if (!waiting_.push(command.spec)) {
          publisher_.refused(command.spec, FinishReason::kStopped);
        }
        break;
      case CommandKind::kCancel:
        on_cancel(command.request_id);
        break;
    }
  }
}

void DecodeThread::on_cancel(RequestId id) noexcept {
  for (Slot& slot : slots_) {
    if (slot.active() && slot.spec->id == id) {
      settle();  // may end it
      if (slot.active()) publisher_.finished(slot, FinishReason::kCancelled);
      return;
    }
  }
  if (RequestSpec* spec = waiting_.remove(id)) {
    publisher_.refused(spec, FinishReason::kCancelled);
  }
}

Slot* DecodeThread::choose_slot(const RequestSpec& spec) noexcept {
  Slot* best = nullptr;
  std::size_t best_prefix = 0;
  for (Slot& slot : slots_) {
    if (slot.active()) continue;
    const std::size_t prefix =
        spec.cache_prompt ? common_prefix_length(slot.cells, spec.prompt) : 0;
    if (best == nullptr || prefix > best_prefix ||
        (prefix == best_prefix && slot.last_used_step < best->last_used_step)) {
      best = &slot;
      best_prefix = prefix;
    }
  }
  return best;
}

void DecodeThread::admit() noexcept {
  while (RequestSpec* spec = waiting_.front()) {
    Slot* slot = choose_slot(*spec);
    if (slot == nullptr) break;
    waiting_.pop();
    begin(*slot, spec);
  }
  counters_.n_waiting.set(waiting_.size());
  counters_.n_slots_active.set(static_cast<std::uint64_t>(n_active()));
}

void DecodeThread::settle() noexcept {
  if (stepper_ == nullptr) return;
  try {
    stepper_->settle(publisher_);
  } catch (const std::exception& e) {
    fail_active(e.what());
  } catch (...) {
    fail_active("unknown exception");
  }
}

void DecodeThread::begin(Slot& slot, RequestSpec* spec) noexcept {
  settle();
  slot.spec = spec;
  slot.phase = SlotPhase::kPrefill;
  slot.n_decoded = 0;
  slot.next_token = -1;
  slot.next_sequence_number = 0;
  counters_.n_requests_started.add(1);
  try {
    const std::int32_t n_cached = stepper_->begin(slot);
    counters_.n_tokens_cached.add(static_cast<std::uint64_t>(n_cached));
    publisher_.started(slot, n_cached);
  } catch (const std::exception& e) {
    record_error(e.what());
    stepper_->forget(slot);
    publisher_.finished(slot, FinishReason::kException);
  } catch (...) {
    record_error("unknown exception");
    stepper_->forget(slot);
    publisher_.finished(slot, FinishReason::kException);
  }
}

void DecodeThread::step() noexcept {
  counters_.n_steps.add(1);
  counters_.n_busy_slots.add(static_cast<std::uint64_t>(n_active()));
  const std::int64_t begin_us = steady_us();
  counters_.last_step_us.set(static_cast<std::uint64_t>(begin_us));
  try {
    stepper_->step(slots_, publisher_);
  } catch (const std::exception& e) {
    fail_active(e.what());
  } catch (...) {
    fail_active("unknown exception");
  }
  if (!may_share_wakeup(begin_us)) publisher_.flush();
}

bool DecodeThread::may_share_wakeup(std::int64_t step_begin_us) noexcept {
  if (options_.wake_interval_us <= 0) return false;
  const std::int64_t now_us = steady_us();
  // A step with a prompt chunk, or with what a command may bring, can take long; of plain decode
  // steps the last one tells how long the next takes.
  const bool next_is_plain =
      commands_.size_approx() == 0 && waiting_.size() == 0 &&
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return !slot.active() || (slot.phase == SlotPhase::kDecode && slot.n_decoded > 1);
      });
  const bool is_soon =
      now_us - last_wakeup_us_ + (now_us - step_begin_us) <= options_.wake_interval_us;
  if (next_is_plain && is_soon && !publisher_.urgent()) return true;
  last_wakeup_us_ = now_us;
  return false;
}

void DecodeThread::fail_active(const char* what) noexcept {
  record_error(what);
  for (Slot& slot : slots_) {
    if (!slot.active()) continue;
    stepper_->forget(slot);
    publisher_.finished(slot, FinishReason::kException);
  }
}

void DecodeThread::park() noexcept {
  command_wakeup_.prepare_park();
  // acquire: pairs with stop().
  if (commands_.size_approx() > 0 || stop_.load(std::memory_order_acquire)) {
    command_wakeup_.cancel_park();
    return;
  }
  // release: pairs with heartbeat_age_us().
  sleeping_.store(true, std::memory_order_release);
  command_wakeup_.wait();
  counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
  sleeping_.store(false, std::memory_order_release);
}

void DecodeThread::finish_all(FinishReason reason) noexcept {
  settle();
  for (Slot& slot : slots_) {
    if (slot.active()) publisher_.finished(slot, reason);
  }
  while (RequestSpec* spec = waiting_.front()) {
    waiting_.pop();
    publisher_.refused(spec, reason);
  }
}

std::int32_t DecodeThread::n_active() const noexcept {
  return static_cast<std::int32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.active(); }));
}

int DecodeThread::describe_for_abort(const void* self, char* text, int size) {
  // The aborting thread may be any of ggml's; the slots are read as they are, for a last message.
  const auto* thread = static_cast<const DecodeThread*>(self);
  int n = std::snprintf(text, static_cast<std::size_t>(size), "unpaced: at step %llu:",
                        static_cast<unsigned long long>(thread->counters_.n_steps.get()));
  for (const Slot& slot : thread->slots_) {
    const RequestSpec* spec = slot.spec;
    if (spec == nullptr || n >= size) continue;
    n += std::snprintf(text + n, static_cast<std::size_t>(size - n),
                       " [slot %d: request %llu, %d cells, %d tokens decoded]", slot.id,
                       static_cast<unsigned long long>(spec->id), slot.n_cells(), slot.n_decoded);
  }
  if (n < size) n += std::snprintf(text + n, static_cast<std::size_t>(size - n), "\n");
  return std::min(n, size - 1);
}

}  // namespace unpaced
