// DeviceStepper's way to the GPU: what it plans, uploads and launches.
#include <algorithm>
#include <utility>

#include "decode/engine_lost.h"
#include "device/loop/device_stepper.h"
#include "grammar/token_mask.h"

namespace unpaced {

template <class Start>
void DeviceStepper::try_fly(Start start) {
  const RequestId request = flight_.slot->spec->id;
  try {
    start();
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    grounded_ = request;
    land();
  }
}

bool DeviceStepper::launch(Slot& slot) {
  try {
    return try_launch(slot);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    // Mostly for want of device memory. Nothing runs; the host can do what the GPU cannot.
    flight_.slot = nullptr;
    grounded_ = slot.spec->id;
    return false;
  }
}

bool DeviceStepper::try_launch(Slot& slot) {
  const cudaStream_t stream = bridge_.stream();
  const std::int32_t position = slot.n_cells();
  std::int32_t n = std::min(kMaxSteps, model_->n_ctx_slot() - 1 - position);
  if (slot.spec->max_tokens >= 0) n = std::min(n, slot.spec->max_tokens - slot.n_decoded);
  if (n < 1) return false;  // the context is full: a step there would overwrite or skip a position
  bridge_.synchronize_context();
  CellPlan plan = bridge_.plan(slot.sequence, n);
  if (plan.cells.empty()) return false;

  std::int32_t n_used = std::max(plan.n_used, plan.cells.front() + 1);
  const Window window{plan.stream, bridge_.window_cells(n_used)};
  std::size_t n_steps = 0;
  for (const std::int32_t cell : plan.cells) {
    n_used = std::max(n_used, cell + 1);
    if (bridge_.window_cells(n_used) != window.n_kv) break;
    ++n_steps;
  }
  const TokenMask* mask = slot.spec->mask.get();
  flight_.is_stepwise = mask != nullptr && !mask->waits();
  static_cast<void>(graphs().get(window));  // captured before anything is written

  if (drawn_on_device_ != &slot || drawn_request_ != slot.spec->id) {
    drawn_on_device_ = nullptr;  // until all of it is there
    stream_is_busy_ = true;
    sampler_.upload(*slot.spec, host_.sampler(slot), stream);
    pause_tokens_.upload(*slot.spec, stream);
    drawn_on_device_ = &slot;
    drawn_request_ = slot.spec->id;
  }
  upload_inputs(slot, plan, window);
  LaneControl& control = *control_staging_.data();
  control.n_steps = static_cast<std::int32_t>(n_steps);
  control.position = position;
  control.first_cell = plan.first_cell;
  control.step = 0;
  control.exited = 0;
  std::copy_n(plan.cells.begin(), n_steps, control.cell);
  // A step that was launched ahead of a non-finite row's exit found that row again.
  cuda_check(cudaMemsetAsync(illegal_.data(), 0, sizeof(std::int32_t), stream), "cudaMemsetAsync");
  for (std::size_t i = 0; i < n_steps; ++i) mailbox_.data()->entry[i] = 0;
  mailbox_.data()->stop = 0;
  cuda_check(
      cudaMemcpyAsync(control_.data(), &control, sizeof control, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");

  flight_.slot = &slot;
  flight_.is_paused = false;
  flight_.position = position;
  flight_.n_steps = control.n_steps;
  flight_.n_launched = 0;
  flight_.n_published = 0;
  flight_.plan = std::move(plan);
  flight_.window = window;
  flight_.inputs.clear();
  fly();
  prepare_next_window();
  return true;
}

// The next step's inputs are in place: the device put them there before it left the loop.
void DeviceStepper::resume() {
  flight_.is_paused = false;
  flight_.n_launched = flight_.n_published;
  mailbox_.data()->stop = 0;
  try_fly([this] {
    // After whatever was launched ahead, which does nothing as long as this is set.
    cuda_check(cudaMemsetAsync(&control_.data()->exited, 0, sizeof(std::int32_t), bridge_.stream()),
               "cudaMemsetAsync");
    fly();
  });
}

void DeviceStepper::fly() {
  stream_is_busy_ = true;
  flight_.is_second_draw = false;
  marker_.clear();  // what it marks comes before these steps
  pacer_.launched(StepPacer::Clock::now());
  if (flight_.is_stepwise) {
    launch_steps(1);
  } else if (loop_ == DecodeLoop::kDevice) {
    cuda_check(cudaGraphLaunch(graphs_.get(flight_.window), bridge_.stream()), "cudaGraphLaunch");
    flight_.n_launched = flight_.n_steps;
  } else {
    launch_steps(kQueuedSteps);
  }
}

void DeviceStepper::upload_inputs(const Slot& slot, const CellPlan& plan, const Window& window) {
  const std::span<std::uint16_t> mask(mask_staging_.data(), static_cast<std::size_t>(window.n_kv));
  bridge_.fill_mask(slot.sequence, slot.n_cells(), mask);
  mask[static_cast<std::size_t>(plan.cells.front())] = 0;
  std::int64_t* staged = input_staging_.data();
  staged[0] = slot.next_token;
  staged[1] = slot.n_cells();
  staged[2] = staged[3] = plan.first_cell + plan.cells.front();
  const auto copy = [this](void* to, const void* from, std::size_t n_bytes) {
    cuda_check(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyHostToDevice, bridge_.stream()),
               "cudaMemcpyAsync");
  };
  const StepInputs& inputs = bridge_.inputs();
  copy(inputs.mask, mask.data(), mask.size_bytes());
  copy(inputs.token, &staged[0], sizeof(std::int32_t));  // little-endian: the low half
  copy(inputs.position, &staged[1], sizeof(std::int32_t));
  copy(inputs.k_index, &staged[2], sizeof(std::int64_t));
  copy(inputs.v_index, &staged[3], sizeof(std::int64_t));
}

void DeviceStepper::launch_steps(std::int32_t n) {
  cudaGraphExec_t graph = nullptr;
  try {
    graph = graphs().get(flight_.window);  // it may have gone with the memory it computed in
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    if (flight_.n_launched == flight_.n_published) throw;
    return;  // as below
  }
  marker_.clear();
  for (; n > 0 && flight_.n_launched < flight_.n_steps; --n, ++flight_.n_launched) {
    const cudaError_t status = cudaGraphLaunch(graph, bridge_.stream());
    if (status == cudaSuccess) continue;
    // Steps in the queue can still be made; this one is tried again when they are.
    if (flight_.n_launched == flight_.n_published) cuda_check(status, "cudaGraphLaunch");
    cudaGetLastError();
    return;
  }
}

void DeviceStepper::launch_ahead() {
  try_fly([this] { launch_steps(flight_.n_published + kQueuedSteps - flight_.n_launched); });
}

void DeviceStepper::prepare_next_window() {
  // The GPU is busy meanwhile.
  const std::int32_t last_cell = flight_.plan.cells[static_cast<std::size_t>(flight_.n_steps - 1)];
  const std::int32_t n_kv = bridge_.window_cells(flight_.window.n_kv + 1);
  const Window next{flight_.window.stream, n_kv};
  if (last_cell + 1 == flight_.window.n_kv && !graphs().has(next)) {
    try {
      static_cast<void>(graphs().get(next));
    } catch (const EngineLost&) {
      throw;
    } catch (const std::exception&) {
      // The flight at hand is well without it; the next one sees to it.
    }
  }
  counters_.n_window_graphs.set(graphs_.size() + masked_graphs_.size());
}

}  // namespace unpaced
