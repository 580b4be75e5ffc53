// Slot actions that copy a slot's state out of its cells, or restore one there, part by part
// between steps. Nobody gets the slot meanwhile. Decode thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/stepper.h"
#include "kept/cell_store.h"
#include "kept/part_pool.h"
#include "kept/part_size.h"
#include "slots/slot.h"
#include "slots/slot_action.h"
#include "slots/state_pieces.h"

namespace unpaced {

class StateMover {
 public:
  enum class Progress : std::uint8_t {
    kNone,   // there is nothing to do
    kMoved,  // a part
    kStuck   // the part found no free cells, or cannot be copied; it is tried again
  };

  // The parts' memory and size are shared with others.
  StateMover(PartPool& pool, PartSize& size, std::int32_t n_slots);

  // The action, of an idle slot, begins. False: this state cannot be moved in parts, and nothing
  // has happened.
  [[nodiscard]] bool begin(Stepper& stepper, CellStore& store, Slot& slot, SlotAction& action);
  [[nodiscard]] bool has_work() const noexcept { return !moves_.empty() || !done_.empty(); }
  // The next part of the move that began first.
  [[nodiscard]] Progress advance(CellStore& store);
  // The move that began first cannot go on. The slot is empty if something was to be restored.
  void fail(Stepper& stepper);
  // All that are under way end without success; what their slots hold is in doubt.
  void give_up() noexcept;

  // An action that is over: its slot is free. Null: there is none.
  [[nodiscard]] SlotAction* next_done() noexcept;

 private:
  struct Move {
    Slot* slot;
    SlotAction* action;
    std::optional<StatePieces> pieces;  // kCopy
    std::int32_t n_copied = 0;          // cells
  };

  [[nodiscard]] bool begin_copy(CellStore& store, Slot& slot, SlotAction& action);
  [[nodiscard]] bool begin_restore(Stepper& stepper, const CellStore& store, Slot& slot,
                                   SlotAction& action);
  [[nodiscard]] Progress copy_next(CellStore& store);
  [[nodiscard]] Progress restore_next(CellStore& store);
  void finish(bool succeeded) noexcept;

  PartPool& pool_;
  PartSize& size_;
  std::vector<Move> moves_;  // the oldest first; one a slot at most
  std::vector<SlotAction*> done_;
};

}  // namespace unpaced
