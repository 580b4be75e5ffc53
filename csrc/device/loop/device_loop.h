// The decode loop on the GPU: gives it steps, waits for their tokens, and sees to it that they come
// to an end. Which requests it serves and what their tokens mean is its caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "decode/interruption.h"
#include "device/lane/lane.h"
#include "device/lane/lane_controls.h"
#include "device/lane/lane_inputs.h"
#include "device/lane/mask_boards.h"
#include "device/launch/draw_launch.h"
#include "device/llama/llama_bridge.h"
#include "device/loop/step_pacer.h"
#include "device/loop/stream_marker.h"
#include "device/loop/window_graphs.h"
#include "device/phases/step_program.h"
#include "device/state/loop_state.h"
#include "model/decode_loop.h"
#include "model/model.h"

namespace unpaced {

// Up to here ggml has kernels for one number of rows alone; those for more take rows in so many.
inline constexpr std::int32_t kRowsOfOneKernel = 8;

// Decode thread only. Steps go from launch() over pauses to land(), or to drop(). Several sequences
// make each step together and leave together: a row each.
// What waits for the GPU, or gives it work, throws EngineLost where the GPU is of no use any more,
// and else std::runtime_error.
class DeviceLoop {
 public:
  // The host's sampler of a slot's request.
  using SamplerOf = std::function<Sampler&(const Slot&)>;
  // What all lanes have published, what was taken included; whether the GPU has left, and why: a
  // row that is not finite comes first, then a pause.
  struct Progress {
    std::int32_t n_steps;
    LoopExit exit;
  };

  // `model` and `bridge` outlive this. graph: whose kernels compute a window's logits. stall: how
  // long the GPU may be silent; 0: there is no limit. n_lanes: as many as the bridge's windows can
  // have outputs.
  DeviceLoop(const Model& model, LlamaBridge& bridge, AddGraph graph, DecodeLoop kind,
             std::chrono::microseconds stall, const DrawLimits& limits, std::int32_t n_lanes);
  // Has the GPU leave, and waits for that.
  ~DeviceLoop();
  DeviceLoop(const DeviceLoop&) = delete;
  DeviceLoop& operator=(const DeviceLoop&) = delete;

  // What may end the waiting for news. It outlives this.
  void attach(Interruption& interruption) { interruption_ = &interruption; }
  // The logits of the window that is open, computed as a step has them, without the draw.
  void run_graph();
  // Other kernels compute the logits from now on.
  void forget_graphs() noexcept;
  // Captures one lane's graphs of windows that come first. Those of several are idle time's.
  void prepare_windows();
  // As Stepper has it.
  bool use_idle_time();
  [[nodiscard]] std::size_t n_graphs() const noexcept {
    return graphs_.size() + masked_graphs_.size() + stepwise_graphs_.size();
  }

  // How tokens are drawn on this card.
  [[nodiscard]] const DrawLaunch& draw() const noexcept { return draw_; }

  [[nodiscard]] std::size_t n_lanes() const noexcept { return lanes_.size(); }
  // Rows of the graph that steps of so many lanes have. From nine on they are rounded up to eights,
  // so that a crowd which grows and shrinks has few graphs: ggml's kernels take columns in eights,
  // and lose nothing by it. Rows that are nobody's are padding. In streams of their own it is a
  // block of streams that has a graph: 2, 4, 8, ... from a multiple of their number on, which may
  // be more than there are lanes.
  [[nodiscard]] std::int32_t n_graph_rows(std::size_t n_lanes) const noexcept;
  // Of the first steps of plans; nothing: they are in streams that are too far apart.
  [[nodiscard]] std::optional<Window> window_of(std::span<const CellPlan> plans) const noexcept;
  // Every number of rows has graphs of its own from now on.
  void stop_padding() noexcept { pads_ = false; }
  // The one that a sequence alone has.
  [[nodiscard]] Lane& lane() noexcept { return lanes_.front(); }
  [[nodiscard]] const Lane& lane() const noexcept { return lanes_.front(); }
  // Where whose inputs are made ready.
  [[nodiscard]] LaneInputs& inputs() noexcept { return inputs_; }
  // A launch makes one step, and the host looks at every token. Of one lane.
  [[nodiscard]] bool is_stepwise() const noexcept { return draws_ == Draws::kStepwise; }
  // The loop draws under grammars itself, and asks the host where a mask is late.
  [[nodiscard]] bool is_masked() const noexcept { return draws_ == Draws::kMasked; }

  // Plans the slots' next steps and has the GPU make them, with their samplers' state where the GPU
  // has none of these requests. False: there is no cell or no step left. Where it throws nothing
  // runs.
  [[nodiscard]] bool launch(std::span<Slot* const> slots, const SamplerOf& sampler_of);
  // The lanes whose steps are made, by slot; none: nothing was launched, or it has landed.
  [[nodiscard]] std::span<Lane* const> flight() const noexcept { return flight_; }
  [[nodiscard]] bool is_flying() const noexcept { return !flight_.empty(); }
  // Whether it is these slots' steps.
  [[nodiscard]] bool flies(std::span<Slot* const> slots) const noexcept;
  // Of each lane.
  [[nodiscard]] std::int32_t n_taken() const noexcept { return flight_.front()->n_taken(); }
  [[nodiscard]] Progress progress() const noexcept;
  [[nodiscard]] bool is_news(const Progress& progress) const noexcept {
    return progress.n_steps > n_taken();
  }
  // The GPU has left the loop for the host to look, and may go on.
  void pause() noexcept;
  [[nodiscard]] bool is_paused() const noexcept {
    return is_flying() && flight_.front()->is_paused();
  }
  // Goes on after a pause.
  void resume();
  // The GPU leaves after the step that it is at.
  void ask_to_leave() noexcept;
  // The GPU makes the steps that are in its queue, and needs more of them.
  [[nodiscard]] bool runs_ahead() const noexcept {
    return kind_ == DecodeLoop::kAhead && !is_stepwise();
  }
  // Fills the queue up, if it runs ahead.
  void launch_ahead();
  // The last step's token once more, among those that `mask` has a bit for. `lane`: of the flight,
  // which draws under a grammar.
  void draw_again(Lane& lane, Sampler& sampler, std::span<const std::uint32_t> mask);
  // Sleeps until there is news. `may_leave`: comes back without where this thread is wanted.
  [[nodiscard]] Progress wait_for_news(bool may_leave);

  // The steps that were taken are entered into llama.cpp's books; the GPU has left.
  void land();
  // The steps are of no use; the GPU leaves soon.
  void drop() noexcept;
  // The GPU is done with the KV.
  void wait_for_stream();
  // As wait_for_stream(), but what is in the stream may have been dropped, and with a limit.
  void wait_for_end();
  // The host's state of this slot's request counts from now on; of all requests.
  void unseat(const Slot& slot) noexcept;
  void unseat() noexcept;
  // Gives the state of those who were drawn for last to the host.
  void give_back(const SamplerOf& sampler_of);

 private:
  // kAhead: steps that the GPU has in its queue at most.
  static constexpr std::int32_t kQueuedSteps = 3;

  // How a flight's tokens are drawn.
  enum class Draws : std::uint8_t {
    kFree,      // nobody's grammar holds
    kMasked,    // under grammars, within the loop
    kStepwise,  // the host asks the grammar for each token
  };

  [[nodiscard]] WindowGraphs& graphs() noexcept {
    return draws_ == Draws::kFree     ? graphs_
           : draws_ == Draws::kMasked ? masked_graphs_
                                      : stepwise_graphs_;
  }

  [[nodiscard]] bool try_launch(std::span<Slot* const> slots, const SamplerOf& sampler_of);
  [[nodiscard]] std::int32_t n_steps_left(std::span<Slot* const> slots) const noexcept;
  // Each slot's lane becomes the flight's: the one that has its sampler, where it may stay there.
  void take_lanes(std::span<Slot* const> slots, const SamplerOf& sampler_of);
  void give_back(Lane& lane, const SamplerOf& sampler_of);
  void upload_rows();
  // Of the flight's lanes, from the first to the last one.
  struct LaneRange {
    std::size_t first;
    std::size_t n;
  };
  [[nodiscard]] LaneRange flight_range() const noexcept;
  // How these slots' tokens can be drawn; a grammar gets a board for its masks. Nothing: not
  // together.
  [[nodiscard]] std::optional<Draws> choose_draws(std::span<Slot* const> slots);
  // The flight's steps are given to the GPU, as the kind of loop has it.
  void fly();
  void launch_steps(std::int32_t n);

  // device_windows.cpp
  // The graph, then the draw.
  [[nodiscard]] MakeStepProgram program(Draws draws) const;
  [[nodiscard]] StepProgram row_program(const LlamaBridge& bridge, bool keeps_rows) const;
  [[nodiscard]] StepProgram lane_program(const LlamaBridge& bridge, bool is_masked) const;
  // Of one lane's draw, whose row is the i-th.
  [[nodiscard]] StepKernelArguments arguments(const StepSite& site, const Lane& lane,
                                              std::int32_t i) const noexcept;
  [[nodiscard]] LaneKernelArguments lane_arguments(const StepSite& site,
                                                   const DrawLaunch& draw) const noexcept;
  struct Block {
    std::int32_t first;  // stream
    std::int32_t n_rows;
  };
  // Rows are of neighbouring streams.
  [[nodiscard]] bool has_blocks() const noexcept {
    return bridge_.n_streams() > 1 && !bridge_.scatters_rows();
  }
  // The smallest that has these streams.
  [[nodiscard]] Block block_of(std::int32_t low, std::int32_t high) const noexcept;
  // Sets the window that the plans' first steps are in. Returns how many of their steps are; none:
  // they cannot be made together.
  [[nodiscard]] std::int32_t enter_window(std::span<const CellPlan> plans);
  // Every window of so many cells that has a graph of several rows.
  void want_crowds(std::int32_t n_kv, std::int32_t i_window);
  // How many windows' graphs are captured before they are wanted.
  [[nodiscard]] std::int32_t n_windows_ahead(std::int32_t n_rows) const noexcept;

  // device_silence.cpp
  // Sleeps until the next look. False: it was woken before.
  bool nap(bool may_leave);
  // The GPU has been silent for suspiciously long. Throws if that is its end, or the steps'.
  void look_into_silence();

  LlamaBridge& bridge_;
  const AddGraph graph_;
  const DecodeLoop kind_;
  const std::int32_t n_ctx_;
  const std::int32_t n_vocab_;
  const std::chrono::microseconds stall_;
  const DrawLaunch draw_;
  const DrawLaunch lane_draw_;    // of several rows
  const DrawLaunch masked_draw_;  // of one or several under grammars
  LaneControls controls_;
  std::deque<Lane> lanes_;  // they stay where they are
  MaskBoards boards_;
  LaneInputs inputs_;
  DeviceArray<LaneRow> rows_;  // of several, or under grammars
  PinnedArray<LaneRow> row_staging_;
  WindowGraphs graphs_;
  WindowGraphs masked_graphs_;
  WindowGraphs stepwise_graphs_;
  std::deque<Window> wanted_;    // of several lanes, to be captured in idle time
  Window window_{};              // of the steps at hand
  std::int32_t n_launched_ = 0;  // kAhead: of them, given to the GPU
  std::vector<Lane*> flight_;
  std::vector<std::int32_t> flight_rows_;  // of the graph, by lane
  std::vector<std::int32_t> sequences_;    // scratch
  Draws draws_ = Draws::kFree;
  bool pads_ = true;
  bool stream_is_busy_ = false;  // launches since the last wait for the stream
  StreamMarker marker_;
  StepPacer pacer_;
  Interruption* interruption_ = nullptr;  // null: before attach()
};

}  // namespace unpaced
