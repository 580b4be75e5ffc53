// A place in the loop on the GPU, for one sequence: the memory that its row of a step works on, and
// how far its steps are.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/draw/sample_kernels.h"
#include "device/lane/device_sampler.h"
#include "device/lane/lane_controls.h"
#include "device/lane/masked_row.h"
#include "device/lane/pause_tokens.h"
#include "device/llama/llama_bridge.h"
#include "device/state/cuda_memory.h"
#include "device/state/loop_state.h"
#include "grammar/token_mask.h"
#include "model/model.h"
#include "slots/slot.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor. What enqueues work may throw as
// cuda_check().
class Lane {
 public:
  // Steps that the GPU has published, those already taken included, and whether it has left.
  struct Progress {
    std::int32_t n_steps;
    LoopExit exit;
  };
  struct StepToken {
    std::int32_t step;  // of the launch
    TokenId token;
  };

  // control: its own for as long as it is.
  Lane(const Model& model, const LaneControlPlace& control);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // What the lane's row of a step works on; the row's logits and inputs are the graph's.
  [[nodiscard]] StepRow row(float* logits, const StepInputs& inputs) const noexcept;
  // Beside other lanes' rows.
  [[nodiscard]] LaneRow shared_row() const noexcept;
  // In device memory.
  [[nodiscard]] const LaneControl* control() const noexcept { return control_.device; }
  // Enqueues a copy of the row's logits for draw_again(); also while the stream is captured.
  void keep_row(const float* logits, cudaStream_t stream) const {
    masked_row_.keep(logits, stream);
  }

  // --- The request whose tokens are drawn
  // Enqueues the upload of its sampler and its pause tokens, unless they are there.
  void seat(Slot& slot, const Sampler& sampler, cudaStream_t stream);
  // The sampler's state is newer there than the host's for this slot's request; null: for nobody's.
  [[nodiscard]] const Slot* drawn() const noexcept;
  // From now on the host's state is the one that counts.
  void unseat() noexcept { drawn_ = nullptr; }
  void unseat(const Slot& slot) noexcept {
    if (drawn_ == &slot) drawn_ = nullptr;
  }
  // Waits for the stream, then brings the sampler up to date.
  void download(Sampler& sampler, cudaStream_t stream) { sampler_.download(sampler, stream); }

  // --- Its steps: planned, made by the GPU, taken one by one
  // Of the steps that begin() plans next: the grammar whose masks the GPU finds on the mask's
  // board; null: none.
  void obey(const TokenMask* mask) noexcept { mask_ = mask; }
  [[nodiscard]] bool is_masked() const noexcept { return mask_ != nullptr; }
  // Stages the plan of the first n_steps of its cells (LaneControls); they are the slot's from now
  // on.
  void begin(Slot& slot, CellPlan plan, std::int32_t n_steps);
  // The end of a pause: the next step's inputs are in place, the device put them there. Its exit is
  // the caller's to clear.
  void go_on() noexcept;
  // Enqueues another draw of the last step's token, from its row of logits as keep_row() left it,
  // without the tokens that `mask` has no bit for.
  void draw_again(Sampler& sampler, std::span<const std::uint32_t> mask, float* logits,
                  cudaStream_t stream);

  // Whose steps they are; null: there are none.
  [[nodiscard]] Slot* slot() const noexcept { return slot_; }
  [[nodiscard]] std::int32_t n_steps() const noexcept { return n_steps_; }
  [[nodiscard]] std::int32_t n_taken() const noexcept { return n_taken_; }
  [[nodiscard]] bool has_steps_left() const noexcept { return n_taken_ < n_steps_; }
  // The cell of the last step that is planned.
  [[nodiscard]] std::int32_t last_cell() const noexcept {
    return plan_.cells[static_cast<std::size_t>(n_steps_ - 1)];
  }
  [[nodiscard]] Progress progress() const noexcept;
  // Whether the next step, which must have been published, gave a token.
  [[nodiscard]] bool has_token() const noexcept {
    return next_exit() != LoopExit::kNonFinite && next_exit() != LoopExit::kBarred;
  }
  // Whether the GPU leaves after the next step, which must have been published, and why.
  [[nodiscard]] LoopExit next_exit() const noexcept {
    return entry_exit(mailbox_.data()->entry[n_taken_]);
  }
  // The token that take() will take, which must have been published.
  [[nodiscard]] TokenId next_token() const noexcept {
    return entry_token(mailbox_.data()->entry[n_taken_]);
  }
  // The step's input joins the slot's cells; its token is the caller's.
  StepToken take();
  // As take(), where the step gave no token that counts.
  void take_input();
  // Those of a step that was taken, if the request wants any; returns what goes with its token.
  float publish_logprobs(std::int32_t step, Slot& slot, EventPublisher& events) const noexcept {
    return sampler_.publish_logprobs(step, slot, events);
  }

  // The GPU has left the loop for the host to look, and may go on.
  void pause() noexcept { is_paused_ = true; }
  [[nodiscard]] bool is_paused() const noexcept { return is_paused_; }
  // Of the step at hand: the grammar refused the first draw's token, which the host has said.
  [[nodiscard]] bool is_second_draw() const noexcept { return is_second_draw_; }
  // What the host was told where the GPU asked (LoopExit::kAsk), until it goes on.
  void answer(TokenMask::Verdict verdict) noexcept { answer_ = verdict; }
  [[nodiscard]] std::optional<TokenMask::Verdict> answer() const noexcept { return answer_; }
  // The GPU leaves after the step that it is at.
  void ask_to_leave() noexcept { mailbox_.data()->stop = 1; }
  // The steps are over: what was taken is entered into llama.cpp's books.
  void land(LlamaBridge& bridge);
  // They are over, and their cells of no use.
  void drop() noexcept;

 private:
  DeviceSampler sampler_;
  PauseTokens pause_tokens_;
  MaskedRow masked_row_;
  const std::int32_t n_vocab_;
  DeviceArray<std::uint64_t> group_best_;
  const LaneControlPlace control_;
  PinnedArray<LaneMailbox> mailbox_;

  const Slot* drawn_ = nullptr;
  RequestId drawn_request_ = 0;

  Slot* slot_ = nullptr;
  std::int32_t position_ = 0;
  std::int32_t n_steps_ = 0;
  std::int32_t n_taken_ = 0;
  bool is_paused_ = false;
  bool is_second_draw_ = false;
  std::optional<TokenMask::Verdict> answer_;
  const TokenMask* mask_ = nullptr;
  CellPlan plan_;
  std::vector<TokenId> inputs_;  // what the cells of the plan get
};

}  // namespace unpaced
