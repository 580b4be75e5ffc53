// The inputs of a step's rows on their way to the device, all rows in one copy of each kind.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/llama/llama_bridge.h"
#include "device/state/cuda_memory.h"
#include "slots/slot.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class LaneInputs {
 public:
  // n_cells: of the largest window.
  LaneInputs(std::int32_t n_lanes, std::int32_t n_cells);

  // Enqueues each slot's next token, where it goes and what it sees, by row (Window::row_of).
  // plans: by slot, and in the window. The window's other rows are padding. In one stream they
  // repeat the first slot's step, and write to its cell what it writes; in a stream of their own
  // they write to a cell that nothing is kept in. False: such a stream has none. Throws as
  // cuda_check().
  [[nodiscard]] bool upload(LlamaBridge& bridge, std::span<Slot* const> slots,
                            std::span<const CellPlan> plans, const Window& window);

 private:
  // What the row's token sees, cell by cell of the window.
  [[nodiscard]] std::span<std::uint16_t> mask(std::size_t row, const Window& window);
  [[nodiscard]] bool pad(const LlamaBridge& bridge, std::size_t row, std::size_t first_row,
                         const Window& window);

  std::vector<SeenRow> seen_;        // scratch
  PinnedArray<std::int32_t> words_;  // tokens, then positions
  PinnedArray<std::int64_t> cells_;
  PinnedArray<std::uint16_t> mask_;
};

}  // namespace unpaced
