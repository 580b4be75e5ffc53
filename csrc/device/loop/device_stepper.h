// The stepper of a CUDA build: a lone slot that decodes is served by the GPU alone, everything else
// by the HostStepper; they change places between steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "decode/host_reason.h"
#include "decode/stepper.h"
#include "device/draw/masked_row.h"
#include "device/draw/sample_kernels.h"
#include "device/llama/device_cell_store.h"
#include "device/llama/llama_bridge.h"
#include "device/loop/device_sampler.h"
#include "device/loop/pause_tokens.h"
#include "device/loop/step_pacer.h"
#include "device/loop/step_program.h"
#include "device/loop/stream_marker.h"
#include "device/loop/window_graphs.h"
#include "device/state/cuda_memory.h"
#include "device/state/loop_state.h"
#include "host/host_stepper.h"
#include "model/decode_loop.h"

namespace unpaced {

class DeviceStepper final : public Stepper {
 public:
  // Takes the device memory and tests itself against llama_decode. Throws std::runtime_error with
  // the reason if this model, context, build or device cannot be served exactly.
  DeviceStepper(std::shared_ptr<Model> model, const EngineConfig& config, Counters& counters,
                DecodeLoop loop);
  ~DeviceStepper() override;

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return host_.n_ctx(); }
  void attach(Interruption& interruption) override { interruption_ = &interruption; }
  std::int32_t begin(Slot& slot) override;
  void step(std::span<Slot> slots, EventPublisher& events) override;
  void settle(EventPublisher& events) override;
  void forget(Slot& slot) override;
  [[nodiscard]] CellStore* cell_store() noexcept override {
    return cells_ ? &*cells_ : host_.cell_store();
  }
  [[nodiscard]] std::size_t state_bytes(const Slot& slot) override;
  [[nodiscard]] bool copy_state(const Slot& slot, std::span<std::byte> to) override;
  [[nodiscard]] bool restore_state(Slot& slot, const SlotState& state) override;

  [[nodiscard]] const Residency& residency() const noexcept { return bridge_.residency(); }

 private:
  // kAhead: steps that the GPU has in its queue at most.
  static constexpr std::int32_t kQueuedSteps = 3;

  // The launch that the GPU is at work on.
  struct Flight {
    Slot* slot = nullptr;  // null: none
    std::int32_t position = 0;
    std::int32_t n_steps = 0;
    std::int32_t n_launched = 0;   // kAhead: steps given to the GPU
    std::int32_t n_published = 0;  // tokens taken out of the mailbox
    bool is_stepwise = false;      // a launch makes one step, and the host looks at every token
    bool is_second_draw = false;   // of this step: the grammar refused the first one's token
    bool is_paused = false;        // the GPU has left the loop for the host to look, and may go on
    CellPlan plan;
    Window window{};
    std::vector<TokenId> inputs;  // what the cells of the plan get
  };
  struct Progress {
    std::int32_t n_tokens;
    LoopExit exit;
  };

  // self_test.cpp
  void self_test();
  // n_steps, half of them on each side of the end of the window of `border` cells, if the context
  // is so large: a prompt comes before them. False: there is no room for a step.
  [[nodiscard]] bool check_steps(Slot& slot, std::int32_t border, std::int32_t n_steps);
  void compare_logits(Slot& slot, const std::vector<std::vector<float>>& expected,
                      std::span<const TokenId> tokens);
  void compare_tokens(Slot& slot, std::span<const TokenId> tokens);
  void prepare_windows();
  [[nodiscard]] Slot* lone_decoder(std::span<Slot> slots) const noexcept;
  // kNone: the device can draw this slot's tokens.
  [[nodiscard]] HostReason why_host(const Slot& slot);
  // Counts the request, once.
  void note(const Slot& slot, HostReason reason) noexcept;

  // device_launch.cpp
  // False: there is no cell or no step left, or the GPU cannot be given the steps; the host goes
  // on.
  [[nodiscard]] bool launch(Slot& slot);
  // Throws where try_fly() does, with nothing changed that the host would miss.
  [[nodiscard]] bool try_launch(Slot& slot);
  // Goes on after a pause.
  void resume();
  // Runs `start`, which gives the GPU steps. Where that cannot be done the flight lands, and the
  // host makes the request's other steps.
  template <class Start>
  void try_fly(Start start);
  void fly();
  // The slot's next token, where it goes and what it sees, enqueued.
  void upload_inputs(const Slot& slot, const CellPlan& plan, const Window& window);
  void launch_steps(std::int32_t n);
  // kAhead: fills the GPU's queue up.
  void launch_ahead();
  [[nodiscard]] WindowGraphs& graphs() noexcept {
    return flight_.is_stepwise ? masked_graphs_ : graphs_;
  }
  void prepare_next_window();
  [[nodiscard]] Progress progress() const noexcept;
  [[nodiscard]] bool is_news(const Progress& progress) const noexcept {
    return progress.n_tokens > flight_.n_published || progress.exit != LoopExit::kNone;
  }
  // `may_leave`: comes back without news where the loop is wanted.
  [[nodiscard]] Progress wait_for_news(bool may_leave);
  // Takes what the GPU has published; after an exit the flight is over.
  void take(const Progress& progress, EventPublisher& events);

  // device_grammar.cpp
  // May the step's token stay? False: it is drawn again, or the request has ended.
  [[nodiscard]] bool admit(const Progress& progress, EventPublisher& events);
  void draw_again(Slot& slot, const TokenMask& mask);
  void end_by_grammar(FinishReason reason, EventPublisher& events);

  // device_silence.cpp
  // Sleeps until the next look. False: it was woken before.
  bool nap(bool may_leave);
  // The GPU has been silent for suspiciously long. Throws if that is its end: EngineLost, or
  // std::runtime_error where the flight alone is over.
  void look_into_silence();
  // As cudaStreamSynchronize, with a limit: throws EngineLost.
  void wait_for_end();

  // The flight is over: its tokens' cells are entered into llama.cpp's books.
  void land();
  void stop_flight() noexcept;
  // The GPU is done with the KV.
  void wait_for_stream();
  // Gives the sampler's state back before.
  void step_on_host(std::span<Slot> slots, HostReason reason, EventPublisher& events);
  // llama.cpp's whole graph, then the draw. keeps_row: the row of logits is kept before.
  [[nodiscard]] MakeStepProgram step_program(bool keeps_row) const;
  [[nodiscard]] StepKernelArguments arguments(const Window& window, float* logits) const noexcept;

  const std::shared_ptr<Model> model_;
  Counters& counters_;
  const DecodeLoop loop_;
  HostStepper host_;
  LlamaBridge bridge_;
  std::optional<DeviceCellStore> cells_;  // where llama.h's way is not the only one
  DeviceSampler sampler_;
  DeviceArray<std::uint64_t> group_best_;
  DeviceArray<std::int32_t> illegal_;
  PauseTokens pause_tokens_;
  std::vector<RequestId> noted_;  // by slot id: the last request that was counted
  DeviceArray<LaneControl> control_;
  PinnedArray<LaneControl> control_staging_;
  PinnedArray<std::uint16_t> mask_staging_;
  PinnedArray<std::int64_t> input_staging_;  // token, position, k index, v index
  PinnedArray<LaneMailbox> mailbox_;
  MaskedRow masked_row_;
  WindowGraphs graphs_;
  WindowGraphs masked_graphs_;             // one step, whose row of logits is kept
  const std::chrono::microseconds stall_;  // 0: no limit
  Interruption* interruption_ = nullptr;   // null: before attach()
  StreamMarker marker_;
  StepPacer pacer_;
  Flight flight_;
  // Whose sampler state is on the device, newer than the host's; null: nobody's.
  Slot* drawn_on_device_ = nullptr;
  RequestId drawn_request_ = 0;
  RequestId grounded_ = 0;       // the request whose steps the GPU could not be given; 0: none
  bool stream_is_busy_ = false;  // launches since the last wait for the stream
};

}  // namespace unpaced
