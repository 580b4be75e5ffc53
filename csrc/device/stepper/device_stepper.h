// The stepper of a CUDA build: slots that decode, as many as there are lanes, are served by the GPU
// alone, everything else by the HostStepper; they change places between steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "decode/host_reason.h"
#include "decode/stepper.h"
#include "device/llama/booked_cells.h"
#include "device/llama/device_cell_store.h"
#include "device/llama/llama_bridge.h"
#include "device/loop/device_loop.h"
#include "device/loop/own_step.h"
#include "device/stepper/device_policy.h"
#include "device/stepper/loop_members.h"
#include "host/host_stepper.h"
#include "host/prompt_pass.h"
#include "model/decode_loop.h"

namespace unpaced {

class DeviceStepper final : public Stepper {
 public:
  // Takes the device memory. Throws std::runtime_error with the reason if this model, context,
  // build or device cannot be served exactly.
  // limits: of the draw's launches. n_lanes: slots that decode together, at most.
  DeviceStepper(std::shared_ptr<Model> model, const EngineConfig& config, Counters& counters,
                DecodeLoop loop, const DrawLimits& limits, std::int32_t n_lanes);

  // Once, before anything else: tests a step's kernels against ggml's, and the loop against
  // llama_decode. Throws std::runtime_error as the constructor, and EngineLost where the GPU hangs:
  // not within the constructor, which would have the members destroyed, and they wait for the GPU.
  void prepare(std::int32_t n_slots);

  // After prepare(): what is asked before llama_decode computes a prompt.
  void take(std::unique_ptr<PromptPass> prompts) {
    host_.attach_prompt_pass(*prompts);
    prompts_ = std::move(prompts);
  }

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return host_.n_ctx(); }
  void attach(Interruption& interruption) override { loop_.attach(interruption); }
  std::int32_t begin(Slot& slot) override;
  void step(std::span<Slot> slots, EventPublisher& events) override;
  void settle(EventPublisher& events) override;
  [[nodiscard]] double prompt_us(std::int32_t n, std::int32_t n_rest,
                                 std::int32_t n_decoding) const noexcept override {
    return host_.prompt_us(n, n_rest, n_decoding);
  }
  [[nodiscard]] double step_us(std::int32_t n_decoding,
                               std::int32_t n_waiting) const noexcept override {
    return host_.step_us(n_decoding, n_waiting);
  }
  bool use_idle_time() override;
  [[nodiscard]] bool wants_quiet_time() override {
    return prompts_ != nullptr && prompts_->wants_quiet_time();
  }
  bool use_quiet_time() override { return prompts_->use_quiet_time(); }
  void forget(Slot& slot) override;
  [[nodiscard]] CellStore* cell_store() noexcept override {
    return cells_ ? &*cells_ : host_.cell_store();
  }
  [[nodiscard]] std::size_t state_bytes(const Slot& slot) override;
  [[nodiscard]] bool copy_state(const Slot& slot, std::span<std::byte> to) override;
  [[nodiscard]] bool restore_state(Slot& slot, const SlotState& state) override;

  [[nodiscard]] const Residency& residency() const noexcept { return bridge_.residency(); }
  [[nodiscard]] const std::vector<StepPhaseReport>& phases() const noexcept {
    return step_.report();
  }
  [[nodiscard]] const std::vector<PhaseTrialReport>& phase_trials() const noexcept {
    return step_.trials();
  }
  [[nodiscard]] const std::vector<LaneStepReport>& lane_steps() const noexcept {
    return lane_steps_;
  }
  // CUDA's number of the device.
  [[nodiscard]] int device() const noexcept { return bridge_.device(); }
  [[nodiscard]] const DrawLaunch& draw() const noexcept { return loop_.draw(); }

 private:
  // A step's token, in one lane.
  struct Taken {
    Lane* lane;
    Slot* slot;
    std::int32_t step;  // of the launch
    TokenId token;
    FinishReason reason;
  };

  [[nodiscard]] Lane& lane() noexcept { return loop_.lane(); }
  // Throws std::runtime_error where the loop's steps are not llama_decode's, with ggml's kernels.
  void test(std::int32_t n_slots);
  // Where batches have one sequence each: those who decode make a step in the GPU's loop, and a
  // prompt's chunk may follow. False: the next step is another's to make, or nobody's.
  [[nodiscard]] bool step_beside_prompt(std::span<Slot> slots, EventPublisher& events);
  // False: there is no cell or step left, or the GPU cannot be given the steps; the host goes on.
  [[nodiscard]] bool launch(std::span<Slot* const> members);
  // Runs `start`, which gives the GPU more steps. Where that cannot be done the steps land, and the
  // host makes the request's other ones.
  template <class Start>
  void go_on(Start start);
  // Takes what the GPU has published; after an exit its steps are over or paused.
  void take(const DeviceLoop::Progress& progress, EventPublisher& events);
  // The next step of all lanes. has_left: the GPU has left after it; is_pause: it may go on.
  void take_step(bool has_left, bool is_pause, EventPublisher& events);
  // Brings sampler and grammar up to date. must_land: other steps than these are wanted now.
  [[nodiscard]] Taken take_token(Lane& lane, bool& must_land);
  void publish(const Taken& taken, EventPublisher& events);
  // Gives the sampler's state back before.
  void step_on_host(std::span<Slot> slots, HostReason reason, EventPublisher& events);

  // device_grammar.cpp
  // Stepwise: may the step's token stay? False: it is drawn again, or the request has ended.
  [[nodiscard]] bool admit(const DeviceLoop::Progress& progress, EventPublisher& events);
  void end_by_grammar(FinishReason reason, EventPublisher& events);
  // Answers what the GPU asks of the tokens that it has left its loop with. False: a grammar has
  // not said yet, or a token is drawn again.
  [[nodiscard]] bool answer_questions();
  // Why the lane's request ends with the step at hand, for want of a token; kNone: it does not.
  [[nodiscard]] FinishReason end_under_grammar(Lane& lane) const;
  // The token was taken: its grammar goes on. True: other steps than these are wanted now.
  [[nodiscard]] bool follow(Lane& lane, TokenId token);

  const std::shared_ptr<Model> model_;
  Counters& counters_;
  HostStepper host_;
  LlamaBridge bridge_;
  BookedCells sequences_;
  const std::chrono::microseconds stall_;
  const StepKernels kernels_;
  std::optional<DeviceCellStore> cells_;  // where llama.h's way is not the only one
  OwnStep step_;
  std::vector<LaneStepReport> lane_steps_;
  DeviceLoop loop_;
  DevicePolicy policy_;
  const DeviceLoop::SamplerOf sampler_of_;
  std::vector<Slot*> members_;  // of this step
  std::vector<Taken> taken_;    // of the step at hand, by row
  std::vector<LaneOutcome> outcomes_;
  std::unique_ptr<PromptPass> prompts_;  // null: llama_decode computes all prompts
};

}  // namespace unpaced
