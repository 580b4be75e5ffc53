#include "device/lane/lane.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace unpaced {

Lane::Lane(const Model& model, const LaneControlPlace& control)
    : sampler_(model.n_vocab(), model.n_ctx_slot()),
      pause_tokens_(model),
      masked_row_(model.n_vocab()),
      n_vocab_(model.n_vocab()),
      group_best_(static_cast<std::size_t>(n_groups(model.n_vocab()))),
      control_(control),
      mailbox_(1) {
  inputs_.reserve(kMaxSteps);
}

StepRow Lane::row(float* logits, const StepInputs& inputs) const noexcept {
  return {.logits = logits,
          .n_vocab = n_vocab_,
          .group_best = group_best_.data(),
          .illegal = &control_.device->illegal,
          .pause_tokens = pause_tokens_.device(),
          .sampling = sampler_.device(),
          .control = control_.device,
          .mailbox = mailbox_.device(),
          .inputs = inputs};
}

LaneRow Lane::shared_row() const noexcept {
  return {.group_best = group_best_.data(),
          .illegal = &control_.device->illegal,
          .pause_tokens = pause_tokens_.device(),
          .sampling = sampler_.device(),
          .control = control_.device,
          .mailbox = mailbox_.device(),
          .mask_board = mask_ == nullptr ? nullptr : mask_->board()->reader(),
          .kept_row = masked_row_.kept()};
}

const Slot* Lane::drawn() const noexcept {
  const bool is_newer = drawn_ != nullptr && drawn_->active() && drawn_->spec->id == drawn_request_;
  return is_newer ? drawn_ : nullptr;
}

void Lane::seat(Slot& slot, const Sampler& sampler, cudaStream_t stream) {
  if (drawn_ == &slot && drawn_request_ == slot.spec->id) return;
  drawn_ = nullptr;  // until all of it is there
  sampler_.upload(*slot.spec, sampler, stream);
  pause_tokens_.upload(*slot.spec, stream);
  drawn_ = &slot;
  drawn_request_ = slot.spec->id;
}

void Lane::begin(Slot& slot, CellPlan plan, std::int32_t n_steps) {
  LaneControl& control = *control_.staged;
  control.n_steps = n_steps;
  control.position = slot.n_cells();
  control.first_cell = plan.first_cell;
  control.step = 0;
  control.exited = 0;
  control.drawn = -1;
  control.stop = 0;
  control.mask_step = mask_ == nullptr ? 0 : mask_->step();
  control.verdict = MaskVerdict::kAllowed;
  // A step that was launched ahead of a non-finite row's exit found that row again.
  control.illegal = 0;
  std::copy_n(plan.cells.begin(), n_steps, control.cell);
  for (std::int32_t i = 0; i < n_steps; ++i) mailbox_.data()->entry[i] = 0;
  mailbox_.data()->stop = 0;
  slot_ = &slot;
  position_ = control.position;
  n_steps_ = n_steps;
  n_taken_ = 0;
  is_paused_ = is_second_draw_ = false;
  answer_.reset();
  plan_ = std::move(plan);
  inputs_.clear();
}

void Lane::go_on() noexcept {
  is_paused_ = is_second_draw_ = false;
  answer_.reset();
  mailbox_.data()->stop = 0;
}

void Lane::draw_again(Sampler& sampler, std::span<const std::uint32_t> mask, float* logits,
                      cudaStream_t stream) {
  is_second_draw_ = true;
  // The random streams go on from the first draw; the text that the penalties see does not have
  // the refused token.
  sampler_.download(sampler, stream);
  sampler_.upload(*slot_->spec, sampler, stream);
  mailbox_.data()->entry[n_taken_] = 0;
  LaneControl& control = *control_.staged;
  control.step = n_taken_;
  control.exited = 0;
  static_assert(offsetof(LaneControl, exited) == offsetof(LaneControl, step) + sizeof control.step);
  cuda_check(
      cudaMemcpyAsync(&control_.device->step, &control.step,
                      sizeof control.step + sizeof control.exited, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
  masked_row_.restore(logits, mask, stream);
}

Lane::Progress Lane::progress() const noexcept {
  Progress now{n_taken_, LoopExit::kNone};
  while (now.n_steps < n_steps_ && now.exit == LoopExit::kNone) {
    // One word, written by one store: no other memory hangs on it.
    const std::uint64_t entry = mailbox_.data()->entry[now.n_steps];
    if (entry == 0) break;
    now.exit = entry_exit(entry);
    ++now.n_steps;
  }
  // The GPU had left before.
  if (is_second_draw_ && now.n_steps > n_taken_ && now.exit == LoopExit::kNone) {
    now.exit = LoopExit::kPause;
  }
  return now;
}

Lane::StepToken Lane::take() {
  const StepToken taken{n_taken_, next_token()};
  take_input();
  ++n_taken_;
  return taken;
}

void Lane::take_input() {
  inputs_.push_back(slot_->next_token);
  slot_->cells.push_back(slot_->next_token);
}

void Lane::land(LlamaBridge& bridge) {
  const Slot& slot = *std::exchange(slot_, nullptr);
  mask_ = nullptr;
  is_paused_ = false;
  bridge.commit(slot.sequence, position_, plan_, inputs_);
}

void Lane::drop() noexcept {
  slot_ = nullptr;
  mask_ = nullptr;
  is_paused_ = false;
}

}  // namespace unpaced
