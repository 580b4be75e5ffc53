#include "slot_keeper.h"

#include <new>
#include <optional>
#include <utility>

namespace unpaced {

bool SlotKeeper::keep(Stepper& stepper, const Slot& slot) {
  if (slot.cells.empty() || slot.is_throwaway) return false;
  const std::size_t n_bytes = stepper.state_bytes(slot);
  if (!cache_.wants(slot.cells, n_bytes, slot.lora_scales)) return false;
  cache_.make_room(slot.cells, n_bytes, slot.lora_scales);
  try {
    SlotState state;
    state.allocate(n_bytes);
    if (!stepper.copy_state(slot, state.bytes())) return false;
    state.tokens = slot.cells;
    state.lora_scales = slot.lora_scales;
    cache_.put(std::move(state));
  } catch (const std::bad_alloc&) {
    return false;  // the prompt will be computed anew, that is all
  }
  return true;
}

Takeover SlotKeeper::make_way(Stepper& stepper, std::span<Slot> slots, const SlotChoice& choice,
                              const RequestSpec& spec) {
  Takeover done;
  if (!cache_.enabled()) return done;
  std::optional<SlotState> better;
  bool is_restored = true;
  if (choice.takes_over) {
    done.updated = true;
    keep(stepper, *choice.slot);
    if (spec.cache_prompt && !spec.prompt_logprobs) {
      const Slot& slot = *choice.slot;
      const bool is_of_use = slot.lora_scales == spec.lora_scales;
      better =
          cache_.take(is_of_use ? std::span<const TokenId>(slot.cells) : std::span<const TokenId>(),
                      spec.prompt, spec.lora_scales);
    }
    if (better) is_restored = stepper.restore_state(*choice.slot, *better);
  }
  if (options_.cache_idle_slots) {
    for (Slot& slot : slots) {
      if (slot.active() || &slot == choice.slot || slot.cells.empty()) continue;
      if (keep(stepper, slot)) ++done.n_idle;
      if (options_.clear_idle_slots) stepper.forget(slot);
    }
  }
  // There was no room before the idle slots gave up their cells.
  if (!is_restored && !stepper.restore_state(*choice.slot, *better)) stepper.forget(*choice.slot);
  counters_.n_cache_bytes.set(cache_.n_bytes());
  counters_.n_cache_states.set(cache_.size());
  return done;
}

void SlotKeeper::act(Stepper& stepper, Slot& slot, SlotAction& action) {
  switch (action.kind) {
    case SlotActionKind::kCopy: {
      action.state.allocate(stepper.state_bytes(slot));
      action.state.tokens = slot.cells;
      action.state.lora_scales = slot.lora_scales;
      action.succeeded = action.state.n_bytes > 0 && stepper.copy_state(slot, action.state.bytes());
      break;
    }
    case SlotActionKind::kRestore:
      action.succeeded = stepper.restore_state(slot, action.state);
      if (!action.succeeded) stepper.forget(slot);
      slot.is_throwaway = false;
      break;
    case SlotActionKind::kErase:
      action.n_tokens = slot.n_cells();
      stepper.forget(slot);
      action.succeeded = true;
      return;
  }
  action.n_tokens = slot.n_cells();
}

}  // namespace unpaced
