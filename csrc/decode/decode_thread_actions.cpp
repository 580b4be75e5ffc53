// DecodeThread's slot actions, and the turns in which slots' states move.
#include "decode/decode_thread.h"

namespace unpaced {

void DecodeThread::run_actions() noexcept {
  for (std::size_t i = 0; i < actions_.size();) {
    SlotAction& action = *actions_[i];
    Slot& slot = slots_[static_cast<std::size_t>(action.slot)];
    if (!slot.is_free()) {
      ++i;
      continue;
    }
    actions_.erase(actions_.begin() + static_cast<std::ptrdiff_t>(i));
    act(slot, action);
  }
}

void DecodeThread::act(Slot& slot, SlotAction& action) noexcept {
  settle();
  bool has_failed = true;
  bool is_over = true;
  guard(
      [&] {
        if (is_lost_) return;
        is_over = keeper_.act(*stepper_, slot, action);
        has_failed = false;
      },
      [this](const char* what) { record_error(what); });
  publish_cells();
  if (is_over)
    publisher_.acted(action, has_failed ? FinishReason::kException : FinishReason::kNone);
}

void DecodeThread::share_prefixes() noexcept {
  if (!keeper_.awaits_prefixes()) return;
  guard([this] { keeper_.share_prefixes(*stepper_, slots_); },
        [this](const char* what) { fail_active(what); });
}

bool DecodeThread::tend_states() noexcept {
  if (!keeper_.has_work()) return false;
  counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
  guard([this] { keeper_.work(*stepper_, slots_); },
        [this](const char* what) {
          keeper_.give_up(*stepper_);
          for (Slot& slot : slots_) {
            if (slot.move == SlotMove::kIn && !forget(slot)) return;
          }
          keeper_.give_up_actions();
          fail_active(what);
        });
  if (is_lost_) return false;
  const bool is_slot_free = end_actions(FinishReason::kNone);
  seat_ready();
  return is_slot_free;
}

bool DecodeThread::end_actions(FinishReason reason) noexcept {
  bool has_ended = false;
  while (const SlotAction* action = keeper_.next_done()) {
    if (!has_ended) publish_cells();
    has_ended = true;
    publisher_.acted(*action, reason);
  }
  return has_ended;
}

}  // namespace unpaced
