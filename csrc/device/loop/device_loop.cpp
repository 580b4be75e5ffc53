#include "device/loop/device_loop.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "device/draw/sample_kernels.h"
#include "device/kernels/card.h"
#include "grammar/token_mask.h"

namespace unpaced {
namespace {

constexpr std::int32_t kWindowsAhead = 16;
constexpr std::int32_t kEarlyStarts = 90;  // the code that has them

DrawLaunch draw_on(const LlamaBridge& bridge, std::int32_t n_vocab, const DrawLimits& limits) {
  DrawLaunch draw = prepare_step_kernels(n_vocab, limits);
  draw.starts_early =
      find_card(bridge.device()).dependents_start_early && step_kernel_code().ptx >= kEarlyStarts;
  return draw;
}

// Behind a copy, which is no kernel.
DrawLaunch after_copy(DrawLaunch draw) {
  draw.starts_early = false;
  return draw;
}

}  // namespace

DeviceLoop::DeviceLoop(const Model& model, LlamaBridge& bridge, AddGraph graph, DecodeLoop kind,
                       std::chrono::microseconds stall, const DrawLimits& limits)
    : bridge_(bridge),
      graph_(std::move(graph)),
      kind_(kind),
      n_ctx_(model.n_ctx_slot()),
      stall_(stall),
      draw_(draw_on(bridge, model.n_vocab(), limits)),
      lanes_{Lane(model, bridge.n_cells())},
      graphs_(bridge, program(false),
              kind == DecodeLoop::kDevice ? WindowLaunch::kLoop : WindowLaunch::kGuardedStep),
      masked_graphs_(bridge, program(true), WindowLaunch::kStep) {}

DeviceLoop::~DeviceLoop() {
  drop();
  cudaStreamSynchronize(bridge_.stream());
}

MakeStepProgram DeviceLoop::program(bool keeps_rows) const {
  return [this, keeps_rows](const LlamaBridge& bridge) {
    StepProgram program;
    program.guard_by([this](const StepSite& site) {
      launch_step_guard(lane().control(), site.condition, site.stream);
    });
    graph_(program, bridge);
    if (keeps_rows) {
      program.then([this](const StepSite& site) { lane().keep_row(site.logits, site.stream); });
    }
    program.then([this, draw = keeps_rows ? after_copy(draw_) : draw_](const StepSite& site) {
      launch_step_kernels(arguments(site), draw, site.stream);
    });
    return program;
  };
}

StepKernelArguments DeviceLoop::arguments(const StepSite& site) const noexcept {
  const StepInputs inputs = bridge_.inputs().of_row(0, site.window.n_kv);
  return {.rows = {lane().row(site.logits, inputs)},
          .loop = site.condition,
          .loops = site.loops,
          .keys_are_far = draw_.keys_are_far};
}

void DeviceLoop::run_graph() {
  StepProgram program;
  graph_(program, bridge_);
  program.enqueue(bridge_, {.stream = bridge_.stream(),
                            .window = {},
                            .logits = bridge_.logits(),
                            .condition = {},
                            .loops = false});
}

void DeviceLoop::forget_graphs() noexcept {
  graphs_.clear();
  masked_graphs_.clear();
}

bool DeviceLoop::launch(Slot& slot, const Sampler& sampler) {
  try {
    return try_launch(slot, sampler);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    lane().drop();
    throw;
  }
}

bool DeviceLoop::try_launch(Slot& slot, const Sampler& sampler) {
  const cudaStream_t stream = bridge_.stream();
  std::int32_t n = std::min(kMaxSteps, n_ctx_ - 1 - slot.n_cells());
  if (slot.spec->max_tokens >= 0) n = std::min(n, slot.spec->max_tokens - slot.n_decoded);
  if (n < 1) return false;  // the context is full: a step there would overwrite or skip a position
  bridge_.synchronize_context();
  CellPlan plan = bridge_.plan(slot.sequence, n);
  if (plan.cells.empty()) return false;

  std::int32_t n_used = std::max(plan.n_used, plan.cells.front() + 1);
  window_ = {plan.stream, bridge_.window_cells(n_used)};
  std::int32_t n_steps = 0;
  for (const std::int32_t cell : plan.cells) {
    n_used = std::max(n_used, cell + 1);
    if (bridge_.window_cells(n_used) != window_.n_kv) break;
    ++n_steps;
  }
  const TokenMask* mask = slot.spec->mask.get();
  is_stepwise_ = mask != nullptr && !mask->waits();
  static_cast<void>(graphs().get(window_));  // captured before anything is written

  stream_is_busy_ = true;
  lane().seat(slot, sampler, stream);
  lane().upload_inputs(slot, bridge_, plan, window_, bridge_.inputs().of_row(0, window_.n_kv));
  lane().begin(slot, std::move(plan), n_steps, stream);
  n_launched_ = 0;
  fly();
  prepare_next_window();
  return true;
}

void DeviceLoop::resume() {
  n_launched_ = lane().n_taken();
  lane().go_on(bridge_.stream());
  fly();
}

void DeviceLoop::fly() {
  stream_is_busy_ = true;
  marker_.clear();  // what it marks comes before these steps
  pacer_.launched(StepPacer::Clock::now());
  if (is_stepwise_) {
    launch_steps(1);
  } else if (kind_ == DecodeLoop::kDevice) {
    cuda_check(cudaGraphLaunch(graphs_.get(window_), bridge_.stream()), "cudaGraphLaunch");
    n_launched_ = lane().n_steps();
  } else {
    launch_steps(kQueuedSteps);
  }
}

void DeviceLoop::launch_steps(std::int32_t n) {
  cudaGraphExec_t graph = nullptr;
  try {
    graph = graphs().get(window_);  // it may have gone with the memory it computed in
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    if (n_launched_ == lane().n_taken()) throw;
    return;  // as below
  }
  marker_.clear();
  for (; n > 0 && n_launched_ < lane().n_steps(); --n, ++n_launched_) {
    const cudaError_t status = cudaGraphLaunch(graph, bridge_.stream());
    if (status == cudaSuccess) continue;
    // Steps in the queue can still be made; this one is tried again when they are.
    if (n_launched_ == lane().n_taken()) cuda_check(status, "cudaGraphLaunch");
    cudaGetLastError();
    return;
  }
}

void DeviceLoop::launch_ahead() {
  if (!runs_ahead()) return;
  launch_steps(lane().n_taken() + kQueuedSteps - n_launched_);
}

void DeviceLoop::draw_again(Sampler& sampler, std::span<const std::uint32_t> mask) {
  StepSite site{.stream = bridge_.stream(),
                .window = window_,
                .logits = masked_graphs_.logits(window_),
                .condition = {},
                .loops = false};
  if (site.logits == nullptr) throw std::runtime_error("the decode graph's memory is gone");
  lane().draw_again(sampler, mask, site.logits, site.stream);
  launch_step_kernels(arguments(site), draw_, site.stream);
  marker_.clear();
  stream_is_busy_ = true;
  pacer_.launched(StepPacer::Clock::now());
}

void DeviceLoop::prepare_windows() {
  const std::int32_t n_windows = std::max(1, kWindowsAhead / bridge_.n_streams());
  for (std::int32_t stream = 0; stream < bridge_.n_streams(); ++stream) {
    std::int32_t n_kv = 0;
    for (std::int32_t i = 0; i < n_windows && n_kv < bridge_.n_cells(); ++i) {
      n_kv = bridge_.window_cells(n_kv + 1);
      static_cast<void>(graphs_.get({stream, n_kv}));
    }
  }
}

void DeviceLoop::prepare_next_window() {
  // The GPU is busy meanwhile.
  const Window next{window_.stream, bridge_.window_cells(window_.n_kv + 1)};
  if (lane().last_cell() + 1 != window_.n_kv || graphs().has(next)) return;
  try {
    static_cast<void>(graphs().get(next));
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    // The steps at hand are well without it; the next ones see to it.
  }
}

void DeviceLoop::drop() noexcept {
  if (lane().slot() == nullptr) return;
  lane().ask_to_leave();
  lane().drop();
}

void DeviceLoop::wait_for_stream() {
  if (!stream_is_busy_) return;
  cuda_check(cudaStreamSynchronize(bridge_.stream()), "cudaStreamSynchronize");
  stream_is_busy_ = false;
}

}  // namespace unpaced
