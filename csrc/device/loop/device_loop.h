// The decode loop on the GPU: gives it steps, waits for their tokens, and sees to it that they come
// to an end. Which requests it serves and what their tokens mean is its caller's.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "decode/interruption.h"
#include "device/lane/lane.h"
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

// Decode thread only. One lane runs so far. Steps go from launch() over pauses to land(), or to
// drop(). What waits for the GPU, or gives it work, throws EngineLost where the GPU is of no use
// any more, and else std::runtime_error.
class DeviceLoop {
 public:
  // `model` and `bridge` outlive this. graph: whose kernels compute a window's logits. stall: how
  // long the GPU may be silent; 0: there is no limit.
  DeviceLoop(const Model& model, LlamaBridge& bridge, AddGraph graph, DecodeLoop kind,
             std::chrono::microseconds stall, const DrawLimits& limits);
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
  // Captures the graphs of windows that come first.
  void prepare_windows();
  [[nodiscard]] std::size_t n_graphs() const noexcept {
    return graphs_.size() + masked_graphs_.size();
  }

  // How tokens are drawn on this card.
  [[nodiscard]] const DrawLaunch& draw() const noexcept { return draw_; }

  [[nodiscard]] Lane& lane() noexcept { return lanes_.front(); }
  [[nodiscard]] const Lane& lane() const noexcept { return lanes_.front(); }
  // A launch makes one step, and the host looks at every token.
  [[nodiscard]] bool is_stepwise() const noexcept { return is_stepwise_; }

  // Plans the slot's next steps and has the GPU make them, with `sampler`'s state where the GPU has
  // none of this request. False: there is no cell or no step left. Where it throws nothing runs.
  [[nodiscard]] bool launch(Slot& slot, const Sampler& sampler);
  // Goes on after a pause.
  void resume();
  // The GPU makes the steps that are in its queue, and needs more of them.
  [[nodiscard]] bool runs_ahead() const noexcept {
    return kind_ == DecodeLoop::kAhead && !is_stepwise_;
  }
  // Fills the queue up, if it runs ahead.
  void launch_ahead();
  // The step's token once more, among those that `mask` has a bit for.
  void draw_again(Sampler& sampler, std::span<const std::uint32_t> mask);
  // Sleeps until there is news. `may_leave`: comes back without where this thread is wanted.
  [[nodiscard]] Lane::Progress wait_for_news(bool may_leave);

  // The steps that were taken are entered into llama.cpp's books; the GPU has left.
  void land() { lane().land(bridge_); }
  // The steps are of no use; the GPU leaves soon.
  void drop() noexcept;
  // The GPU is done with the KV.
  void wait_for_stream();
  // As wait_for_stream(), but what is in the stream may have been dropped, and with a limit.
  void wait_for_end();
  // Gives the state of whoever was drawn for last to the host: to what sampler_of(slot) is.
  template <class SamplerOf>
  void give_back(SamplerOf sampler_of) {
    wait_for_stream();
    if (const Slot* drawn = lane().drawn(); drawn != nullptr) {
      lane().download(sampler_of(*drawn), bridge_.stream());
    }
    lane().unseat();
  }

 private:
  // kAhead: steps that the GPU has in its queue at most.
  static constexpr std::int32_t kQueuedSteps = 3;

  // The graph, then the draw. keeps_rows: the logits are kept before.
  [[nodiscard]] MakeStepProgram program(bool keeps_rows) const;
  [[nodiscard]] StepKernelArguments arguments(const StepSite& site) const noexcept;
  [[nodiscard]] WindowGraphs& graphs() noexcept { return is_stepwise_ ? masked_graphs_ : graphs_; }

  [[nodiscard]] bool try_launch(Slot& slot, const Sampler& sampler);
  // The lane's steps are given to the GPU, as the kind of loop has it.
  void fly();
  void launch_steps(std::int32_t n);
  void prepare_next_window();

  // device_silence.cpp
  // Sleeps until the next look. False: it was woken before.
  bool nap(bool may_leave);
  // The GPU has been silent for suspiciously long. Throws if that is its end, or the steps'.
  void look_into_silence();

  LlamaBridge& bridge_;
  const AddGraph graph_;
  const DecodeLoop kind_;
  const std::int32_t n_ctx_;
  const std::chrono::microseconds stall_;
  const DrawLaunch draw_;
  std::array<Lane, kStepRows> lanes_;
  WindowGraphs graphs_;
  WindowGraphs masked_graphs_;   // one step, whose rows of logits are kept
  Window window_{};              // of the steps at hand
  std::int32_t n_launched_ = 0;  // kAhead: of them, given to the GPU
  bool is_stepwise_ = false;
  bool stream_is_busy_ = false;  // launches since the last wait for the stream
  StreamMarker marker_;
  StepPacer pacer_;
  Interruption* interruption_ = nullptr;  // null: before attach()
};

}  // namespace unpaced
