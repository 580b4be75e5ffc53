// What may compute a prompt in llama_decode's place.
#pragma once

#include <span>

#include "base/token.h"
#include "slots/slot.h"

namespace unpaced {

class PromptPass {
 public:
  PromptPass() = default;
  PromptPass(const PromptPass&) = delete;
  PromptPass& operator=(const PromptPass&) = delete;
  virtual ~PromptPass() = default;

  // Decode thread only. The slot's next tokens, the last of its prompt: they get the cells that
  // llama_decode would give them, and n_vocab logits of the last one come back, the same bits,
  // which hold until the next call. Null: nothing has been done, and llama_decode has to. Throws
  // EngineLost.
  [[nodiscard]] virtual const float* compute(const Slot& slot, std::span<const TokenId> tokens) = 0;
  // As Stepper has it.
  virtual bool use_idle_time() = 0;
  [[nodiscard]] virtual bool wants_quiet_time() = 0;
  virtual bool use_quiet_time() = 0;
};

}  // namespace unpaced
