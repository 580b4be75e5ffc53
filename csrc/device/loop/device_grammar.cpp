// DeviceStepper under a grammar: one step a launch. The GPU draws as if there were none; the host
// asks the mask, and where it refuses the token has the GPU draw again from the same logits.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:640-680.
#include <stdexcept>

#include "device/draw/sample_kernels.h"
#include "device/loop/device_stepper.h"
#include "grammar/masked_draw.h"

namespace unpaced {

bool DeviceStepper::admit(const Progress& progress, EventPublisher& events) {
  Slot& slot = *flight_.slot;
  TokenMask& mask = *slot.spec->mask;
  const bool is_token = progress.exit != LoopExit::kNonFinite;
  const TokenId token =
      is_token ? entry_token(mailbox_.data()->entry[flight_.n_published]) : TokenId{-1};
  if (!flight_.is_second_draw) {
    if (!is_token) return true;  // an error like any other's
    const TokenMask::Verdict verdict = mask.check(token);
    if (verdict == TokenMask::Verdict::kDenied) {
      draw_again(slot, mask);
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

void DeviceStepper::draw_again(Slot& slot, const TokenMask& mask) {
  const cudaStream_t stream = bridge_.stream();
  flight_.is_second_draw = true;
  // The random streams go on from the first draw; the text that the penalties see does not have
  // the refused token.
  sampler_.download(host_.sampler(slot), stream);
  sampler_.upload(*slot.spec, host_.sampler(slot), stream);
  mailbox_.data()->entry[flight_.n_published] = 0;
  LaneControl& control = *control_staging_.data();
  control.step = flight_.n_published;
  control.exited = 0;
  static_assert(offsetof(LaneControl, exited) == offsetof(LaneControl, step) + sizeof control.step);
  cuda_check(
      cudaMemcpyAsync(&control_.data()->step, &control.step,
                      sizeof control.step + sizeof control.exited, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
  float* logits = masked_graphs_.logits(flight_.window);
  if (logits == nullptr) throw std::runtime_error("the decode graph's memory is gone");
  masked_row_.restore(logits, mask.words(), stream);
  launch_step_kernels(arguments(flight_.window, logits), stream);
  marker_.clear();
  stream_is_busy_ = true;
  pacer_.launched(StepPacer::Clock::now());
}

void DeviceStepper::end_by_grammar(FinishReason reason, EventPublisher& events) {
  Slot& slot = *flight_.slot;
  flight_.inputs.push_back(slot.next_token);
  slot.cells.push_back(slot.next_token);
  land();
  events.finished(slot, reason);
}

}  // namespace unpaced
