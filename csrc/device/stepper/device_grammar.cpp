// DeviceStepper under grammars. The GPU draws as if there were none; where the mask refuses the
// token it is drawn again from the same logits. Mostly the GPU looks into the mask by itself, and
// asks where that is late. Where masks are slow, it makes a step a launch, and the host looks.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:640-680.
#include <chrono>
#include <optional>

#include "device/stepper/device_stepper.h"
#include "grammar/masked_draw.h"

namespace unpaced {
namespace {

// Then the decode thread looks for commands, and asks again.
constexpr std::chrono::microseconds kAnswerWait{500};

}  // namespace

bool DeviceStepper::admit(const DeviceLoop::Progress& progress, EventPublisher& events) {
  Slot& slot = *lane().slot();
  TokenMask& mask = *slot.spec->mask;
  const bool is_token = progress.exit != LoopExit::kNonFinite;
  const TokenId token = is_token ? lane().next_token() : TokenId{-1};
  if (!lane().is_second_draw()) {
    if (!is_token) return true;  // an error like any other's
    const TokenMask::Verdict verdict = mask.check(token);
    if (verdict == TokenMask::Verdict::kDenied) {
      loop_.draw_again(lane(), host_.sampler(slot), mask.words());
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

bool DeviceStepper::answer_questions() {
  bool is_done = true;
  for (Lane* lane : loop_.flight()) {
    if (!lane->is_masked() || lane->next_exit() != LoopExit::kAsk || lane->answer()) continue;
    Slot& slot = *lane->slot();
    TokenMask& mask = *slot.spec->mask;
    const auto verdict = mask.check_within(lane->next_token(), kAnswerWait);
    if (!verdict) {
      is_done = false;
      continue;
    }
    counters_.n_late_masks.add(1);
    mask.board()->count_late();
    if (*verdict == TokenMask::Verdict::kDenied) {
      loop_.draw_again(*lane, host_.sampler(slot), mask.words());
      is_done = false;
    } else {
      lane->answer(*verdict);
    }
  }
  return is_done;
}

FinishReason DeviceStepper::end_under_grammar(Lane& lane) const {
  if (!lane.is_masked()) return FinishReason::kNone;
  TokenMask& mask = *lane.slot()->spec->mask;
  if (lane.answer() == TokenMask::Verdict::kFailed) return FinishReason::kGrammarFailed;
  if (lane.is_second_draw()) {
    if (lane.has_token() && mask.allows(lane.next_token())) return FinishReason::kNone;
  } else {
    if (lane.next_exit() != LoopExit::kBarred) return FinishReason::kNone;
    // The mask is there: the GPU has seen it. The verdict on any token shows it to this thread.
    static_cast<void>(mask.check(0));
  }
  const bool ends =
      may_end(mask, model_->n_vocab(), [this](TokenId t) { return model_->is_eog(t); });
  return ends ? FinishReason::kGrammarEnd : FinishReason::kGrammarDeadEnd;
}

bool DeviceStepper::follow(Lane& lane, TokenId token) {
  TokenMask* mask = lane.slot()->spec->mask.get();
  if (mask == nullptr) return false;
  // Its masks come in time again: the loop can draw under them.
  if (loop_.is_stepwise()) return mask->board() != nullptr && !mask->board()->is_slow();
  const bool waited = mask->waits();
  mask->accept(token);
  // The tokens that can end the wait are among the pause tokens.
  if (!lane.is_masked()) return waited && !mask->waits();
  const bool was_late = lane.answer().has_value() || lane.is_second_draw();
  if (!was_late) {
    mask->board()->count_in_time();
    counters_.n_masked_tokens.add(1);
  }
  // Where the trigger did not count the text is free again.
  return waited || mask->board()->is_slow();
}

}  // namespace unpaced
