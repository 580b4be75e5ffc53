// Which slots the GPU's loop decodes together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "slots/slot.h"

namespace unpaced {

// All active slots, if each of them decodes and there is a lane for each; else none. Allocates
// nothing where `members` has room for n_lanes.
inline void find_members(std::span<Slot> slots, std::size_t n_lanes, std::vector<Slot*>& members) {
  members.clear();
  for (Slot& slot : slots) {
    // Cells that are planned for steps are free in the books: what is restored would take them.
    const bool moves_in = slot.move == SlotMove::kIn;
    const bool is_other = slot.active() && slot.phase != SlotPhase::kDecode;
    if (moves_in || is_other || (slot.active() && members.size() == n_lanes)) {
      members.clear();
      return;
    }
    if (slot.active()) members.push_back(&slot);
  }
}

// All slots that decode, if there is a lane for each, whatever the others do; else none.
inline void find_decoding(std::span<Slot> slots, std::size_t n_lanes, std::vector<Slot*>& members) {
  members.clear();
  for (Slot& slot : slots) {
    const bool is_member = slot.phase == SlotPhase::kDecode;
    if (slot.move == SlotMove::kIn || (is_member && members.size() == n_lanes)) {
      members.clear();
      return;
    }
    if (is_member) members.push_back(&slot);
  }
}

// What became of a step's token beside the others'.
struct LaneOutcome {
  bool has_ended;       // its request
  bool has_steps_left;  // of those that were planned
};

// Whether those who have left the loop together go on where they are, by a launch alone: somebody
// paused, nobody's request has ended, and all have steps. Else their steps land, and who still
// decodes gets new ones.
[[nodiscard]] inline bool may_resume(bool is_pause,
                                     std::span<const LaneOutcome> outcomes) noexcept {
  return is_pause && std::ranges::all_of(outcomes, [](const LaneOutcome& outcome) {
           return !outcome.has_ended && outcome.has_steps_left;
         });
}

}  // namespace unpaced
