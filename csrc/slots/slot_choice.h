// Which slot a request takes.
#pragma once

#include <cstdint>
#include <span>

#include "slots/common_prefix.h"
#include "slots/slot.h"

namespace unpaced {

struct SlotChoice {
  Slot* slot = nullptr;  // null: none that it may have is free
  // The slot's contents are of little use to the request: they should be kept elsewhere.
  bool takes_over = false;
};

// llama-server's rule (llama.cpp 0c1e57098 tools/server/server-context.cpp:1526-1640): the wanted
// slot; else the free one whose tokens begin with more than `similarity` of the prompt, the most of
// them first; else the one unused for longest. A request that may reuse nothing has no likeness to
// any slot (llama-server would let it spoil the slot that is most like it), nor has one to a slot
// whose cells were computed with other adapters or for another cache domain.
[[nodiscard]] inline SlotChoice choose_slot(std::span<Slot> slots, const RequestSpec& spec,
                                            float similarity) noexcept {
  Slot* best = nullptr;
  float best_similarity = 0.0F;
  const auto n_prompt = static_cast<float>(spec.prompt.size());
  const std::int32_t wanted =
      spec.id_slot < 0 ? -1 : spec.id_slot % static_cast<std::int32_t>(slots.size());
  for (Slot& slot : slots) {
    if (!slot.is_free() || slot.cells.empty() || !spec.cache_prompt || similarity == 0.0F) continue;
    if (!slot.is_of_use_to(spec)) continue;
    if (wanted >= 0 && slot.id != wanted) continue;
    const auto n_common = static_cast<float>(common_prefix_length(slot.cells, spec.prompt));
    const float this_similarity = n_common / n_prompt;
    if (this_similarity > best_similarity && this_similarity > similarity) {
      best = &slot;
      best_similarity = this_similarity;
    }
  }
  if (wanted >= 0) {
    Slot& slot = slots[static_cast<std::size_t>(wanted)];
    if (!slot.is_free()) return {};
    best = &slot;
    if (similarity == 0.0F) return {.slot = best};
  }
  if (best != nullptr) {
    const float n_kept = best_similarity * n_prompt;
    return {.slot = best, .takes_over = n_kept < 0.5F * static_cast<float>(best->n_cells())};
  }
  for (Slot& slot : slots) {
    if (!slot.is_free()) continue;
    // Of slots never used the last one, as llama-server.
    if (best == nullptr || slot.last_used_step <= best->last_used_step) best = &slot;
  }
  return {.slot = best, .takes_over = best != nullptr};
}

}  // namespace unpaced
