// The inputs of a step's rows on their way to the device, all rows in one copy of each kind.
#pragma once

#include <cstdint>
#include <span>

#include "device/llama/llama_bridge.h"
#include "device/state/cuda_memory.h"
#include "slots/slot.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class LaneInputs {
 public:
  // n_cells: of the largest window.
  LaneInputs(std::int32_t n_lanes, std::int32_t n_cells);

  // Enqueues each slot's next token, where it goes and what it sees, by row. plans: likewise, and
  // in the window. Rows of the window beyond these are padding: they repeat the first row's step,
  // and write to its cell what it writes. Throws as cuda_check().
  void upload(LlamaBridge& bridge, std::span<Slot* const> slots, std::span<const CellPlan> plans,
              const Window& window);

 private:
  PinnedArray<std::int32_t> words_;  // tokens, then positions
  PinnedArray<std::int64_t> cells_;
  PinnedArray<std::uint16_t> mask_;
};

}  // namespace unpaced
