// A short prompt's way to the graph that computes it: tokens, positions, cells, and what each token
// sees.
#pragma once

#include <cstdint>
#include <span>

#include "device/llama/llama_bridge.h"
#include "device/state/cuda_memory.h"
#include "slots/slot.h"

namespace unpaced {

class PromptInputs {
 public:
  // most: of any prompt.
  explicit PromptInputs(const LlamaBridge::Most& most);

  // Of the slot's next tokens, in the cells of the plan, for the window's rows; on the bridge's
  // stream. What was enqueued before must have ended.
  void upload(LlamaBridge& bridge, const Slot& slot, std::span<const TokenId> tokens,
              const CellPlan& plan, const Window& window);

 private:
  void fill_mask(LlamaBridge& bridge, const Slot& slot, const CellPlan& plan, const Window& window);

  PinnedArray<std::int32_t> words_;  // tokens, positions, which of them has the logits
  PinnedArray<std::int64_t> cells_;  // of the whole cache
  PinnedArray<std::uint16_t> mask_;
};

}  // namespace unpaced
