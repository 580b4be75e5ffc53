// DeviceStepper under a grammar: one step a launch. The GPU draws as if there were none; the host
// asks the mask, and where it refuses the token has the GPU draw again from the same logits.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:640-680.
#include "device/loop/device_stepper.h"
#include "grammar/masked_draw.h"

namespace unpaced {

bool DeviceStepper::admit(const DeviceLoop::Progress& progress, EventPublisher& events) {
  Slot& slot = *lane().slot();
  TokenMask& mask = *slot.spec->mask;
  const bool is_token = progress.exit != LoopExit::kNonFinite;
  const TokenId token = is_token ? lane().next_token() : TokenId{-1};
  if (!lane().is_second_draw()) {
    if (!is_token) return true;  // an error like any other's
    const TokenMask::Verdict verdict = mask.check(token);
    if (verdict == TokenMask::Verdict::kDenied) {
      loop_.draw_again(host_.sampler(slot), mask.words());
      return false;
    }
    if (verdict == TokenMask::Verdict::kFailed) {
      end_by_grammar(FinishReason::kGrammarFailed, events);
      return false;
    }
  } else if (!is_token || !mask.allows(token)) {
    const bool ends =
        may_end(mask, model_->n_vocab(), [this](TokenId t) { return model_->is_eog(t); });
    end_by_grammar(ends ? FinishReason::kGrammarEnd : FinishReason::kGrammarDeadEnd, events);
    return false;
  }
  mask.accept(token);
  return true;
}

void DeviceStepper::end_by_grammar(FinishReason reason, EventPublisher& events) {
  Slot& slot = *lane().slot();
  lane().take_input();
  loop_.land();
  events.finished(slot, reason);
}

}  // namespace unpaced
