#include "decode/decode_thread.h"

#include <algorithm>
#include <bit>

namespace unpaced {
namespace {

constexpr std::int64_t kExpectationUs = 1000;

// Room for every request that can be submitted and a cancel for each.
std::size_t command_capacity(const DecodeThreadOptions& options) {
  return std::bit_ceil(2 * static_cast<std::size_t>(options.n_slots + options.n_waiting_max) +
                       static_cast<std::size_t>(options.n_actions_max) + 2);
}

}  // namespace

DecodeThread::DecodeThread(const DecodeThreadOptions& options)
    : options_(options),
      commands_(command_capacity(options)),
      events_(options.n_events),
      publisher_(events_, reader_wakeup_, space_wakeup_, stop_, counters_),
      slots_(static_cast<std::size_t>(options.n_slots)),
      waiting_(static_cast<std::size_t>(options.n_slots + options.n_waiting_max)),
      keeper_(options.keeper, options.n_slots, counters_),
      n_slot_cells_(static_cast<std::size_t>(options.n_slots)),
      n_slot_shared_(static_cast<std::size_t>(options.n_slots)),
      nap_(commands_, command_wakeup_, stop_) {
  shared_.reserve(static_cast<std::size_t>(options.n_slots));
  actions_.reserve(static_cast<std::size_t>(options.n_actions_max));
  for (std::int32_t i = 0; i < options.n_slots; ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    slot.id = slot.sequence = i;
  }
}

DecodeThread::~DecodeThread() { stop(); }

bool DecodeThread::submit(RequestSpec* spec) noexcept {
  if (state() != EngineState::kReady) return false;
  return send({.request_id = spec->id, .spec = spec, .kind = CommandKind::kSubmit});
}

bool DecodeThread::submit(SlotAction* action) noexcept {
  if (state() != EngineState::kReady) return false;
  return send({.request_id = action->id, .action = action, .kind = CommandKind::kSlotAction});
}

bool DecodeThread::cancel(RequestId id) noexcept {
  return send({.request_id = id, .spec = nullptr, .kind = CommandKind::kCancel});
}

bool DecodeThread::send(const Command& command) noexcept {
  if (!commands_.try_push(command)) return false;
  command_wakeup_.notify();
  return true;
}

void DecodeThread::expect() noexcept {
  if (options_.cores.empty()) return;  // it would take the time of those it waits for
  // release: pairs with await_expected().
  expected_until_us_.store(steady_us() + kExpectationUs, std::memory_order_release);
  command_wakeup_.notify();
}

std::size_t DecodeThread::drain(TokenEvent* out, std::size_t max) noexcept {
  n_events_most_.set(std::max<std::uint64_t>(n_events_most_.get(), events_.size_approx()));
  const std::size_t n = events_.pop_many(out, max);
  if (n > 0) space_wakeup_.notify();
  return n;
}

std::int32_t DecodeThread::n_cells(std::int32_t slot) const noexcept {
  const auto i = static_cast<std::size_t>(slot);
  return i < n_slot_cells_.size() ? static_cast<std::int32_t>(n_slot_cells_[i].get()) : 0;
}

std::int32_t DecodeThread::n_cells_shared(std::int32_t slot) const noexcept {
  const auto i = static_cast<std::size_t>(slot);
  return i < n_slot_shared_.size() ? static_cast<std::int32_t>(n_slot_shared_[i].get()) : 0;
}

void DecodeThread::loop() {
  // acquire: pairs with stop().
  while (!stop_.load(std::memory_order_acquire) && !is_lost_) {
    keeper_.end_turn();
    drain_commands();
    share_prefixes();
    run_actions();
    admit();
    share_prefixes();
    const bool is_slot_free = tend_states();
    publish_cells();
    if (can_step()) {
      step();
    } else if (!is_slot_free && !keeper_.has_work()) {
      if (publisher_.has_news()) publisher_.flush();
      park();
    }
  }
  drain_commands();
  finish_all(is_lost_ ? FinishReason::kException : FinishReason::kStopped);
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
      case CommandKind::kSlotAction:
        if (actions_.size() < actions_.capacity()) {
          actions_.push_back(command.action);
        } else {
          publisher_.acted(*command.action, FinishReason::kStopped);
        }
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

void DecodeThread::admit() noexcept {
  for (std::size_t i = 0; i < waiting_.size();) {
    RequestSpec* spec = waiting_.at(i);
    const SlotChoice choice = choose_slot(slots_, *spec, options_.slot_similarity);
    if (choice.slot != nullptr) {
      waiting_.take(i);
      begin(choice, spec);
    } else if (spec->id_slot < 0) {
      break;  // every slot is busy
    } else {
      ++i;  // only the slot it wants is
    }
  }
  counters_.n_waiting.set(waiting_.size());
  counters_.n_slots_active.set(static_cast<std::uint64_t>(n_active()));
  if (publisher_.urgent()) publisher_.flush();
}

void DecodeThread::publish_cells() noexcept {
  for (const Slot& slot : slots_) {
    n_slot_cells_[static_cast<std::size_t>(slot.id)].set(slot.cells.size());
  }
  publish_shared_cells();
}

void DecodeThread::publish_shared_cells() noexcept {
  const CellStore* store = stepper_ == nullptr ? nullptr : stepper_->cell_store();
  if (store == nullptr) return;
  const PrefixIndex& index = store->index();
  const std::int32_t n_active_now = n_active();
  if (index.version() == shared_version_ && n_active_now == shared_by_active_) return;
  shared_version_ = index.version();
  shared_by_active_ = n_active_now;
  std::int32_t n_running = 0;
  shared_.clear();
  // Those that run first: what they have in common is counted before the others come.
  for (const bool is_active : {true, false}) {
    for (const Slot& slot : slots_) {
      if (slot.active() != is_active) continue;
      const std::int32_t n = index.n_shared(slot.sequence);
      n_slot_shared_[static_cast<std::size_t>(slot.id)].set(static_cast<std::uint64_t>(n));
      shared_.push_back({.sequence = slot.sequence, .n = n});
      n_running += is_active ? n : 0;
    }
    if (is_active) n_running -= index.n_distinct(shared_);
  }
  counters_.n_cells_repeated.set(static_cast<std::uint64_t>(n_running));
  counters_.n_cells_shared.set(static_cast<std::uint64_t>(index.n_distinct(shared_)));
}

std::int32_t DecodeThread::n_shared(const Slot& slot) const noexcept {
  const CellStore* store = stepper_->cell_store();
  return store == nullptr ? 0 : store->index().n_shared(slot.sequence);
}

void DecodeThread::settle() noexcept {
  if (stepper_ == nullptr || is_lost_) return;
  guard([this] { stepper_->settle(publisher_); }, [this](const char* what) { fail_active(what); });
}

void DecodeThread::begin(const SlotChoice& choice, RequestSpec* spec) noexcept {
  settle();
  Slot& slot = *choice.slot;
  slot.spec = spec;
  slot.phase = SlotPhase::kSeating;
  slot.n_decoded = 0;
  slot.n_shifts = 0;
  slot.next_token = -1;
  slot.next_sequence_number = 0;
  slot.waits = {.begin_us = steady_us()};
  counters_.n_requests_started.add(1);
  if (is_lost_) {
    publisher_.finished(slot, FinishReason::kException);
    return;
  }
  guard([&] { keeper_.make_way(*stepper_, slots_, choice, *spec); },
        [&](const char* what) { fail(slot, what); });
}

bool DecodeThread::forget(Slot& slot) noexcept {
  guard([&] { stepper_->forget(slot); }, [this](const char* what) { lose(what); });
  return !is_lost_;
}

void DecodeThread::seat_ready() noexcept {
  while (const auto ready = keeper_.next_ready()) {
    Slot& slot = *ready->slot;
    slot.phase = SlotPhase::kPrefill;
    slot.waits.copy_us = steady_us() - slot.waits.begin_us;
    slot.is_throwaway = !slot.spec->cache_prompt;
    guard(
        [&] {
          const std::int32_t n_cached = stepper_->begin(slot);
          counters_.n_tokens_cached.add(static_cast<std::uint64_t>(n_cached));
          counters_.n_tokens_shared.add(static_cast<std::uint64_t>(n_shared(slot)));
          publisher_.started(slot, n_cached, ready->takeover);
        },
        [&](const char* what) { fail(slot, what); });
    if (is_lost_) return;
  }
  // A start is told before the prompt is computed: the front end sends the headers and gets the
  // rest of the answer ready meanwhile.
  if (publisher_.urgent()) publisher_.flush();
}

void DecodeThread::fail(Slot& slot, const char* what) noexcept {
  record_error(what);
  if (forget(slot)) publisher_.finished(slot, FinishReason::kException);
}

void DecodeThread::step() noexcept {
  idle_since_us_ = 0;
  counters_.n_steps.add(1);
  counters_.n_busy_slots.add(static_cast<std::uint64_t>(n_active()));
  const std::int64_t begin_us = steady_us();
  counters_.last_step_us.set(static_cast<std::uint64_t>(begin_us));
  guard([this] { stepper_->step(slots_, publisher_); },
        [this](const char* what) { fail_active(what); });
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
    if (slot.active()) fail(slot, what);
  }
}

void DecodeThread::lose(const char* what) noexcept {
  if (is_lost_) return;
  record_error(what);
  is_lost_ = true;
  // Before the events: who sees them sees it. release: pairs with state().
  state_.store(EngineState::kFailed, std::memory_order_release);
  for (Slot& slot : slots_) {
    if (slot.active()) publisher_.finished(slot, FinishReason::kException);
  }
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
  keeper_.give_up_actions();
  end_actions(reason);
  for (const SlotAction* action : actions_) publisher_.acted(*action, reason);
  actions_.clear();
}

bool DecodeThread::can_step() const noexcept { return std::ranges::any_of(slots_, &Slot::steps); }

std::int32_t DecodeThread::n_active() const noexcept {
  return static_cast<std::int32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.active(); }));
}

}  // namespace unpaced
