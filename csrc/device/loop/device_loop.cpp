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

constexpr std::int32_t kEarlyStarts = 90;  // the code that has them
// Workers of grammars whose requests have ended hold theirs a moment longer.
constexpr std::size_t kBoardsPerLane = 4;
// No plan of memory has these: where there is none for another one the host decodes.
constexpr std::size_t kMaskedGraphs = 64;
constexpr std::size_t kStepwiseGraphs = 16;

WindowLaunch window_launch(DecodeLoop kind) noexcept {
  return kind == DecodeLoop::kDevice ? WindowLaunch::kLoop : WindowLaunch::kGuardedStep;
}

DrawLaunch draw_on(const LlamaBridge& bridge, DrawLaunch draw) {
  draw.starts_early =
      find_card(bridge.device()).dependents_start_early && step_kernel_code().ptx >= kEarlyStarts;
  return draw;
}

DrawLaunch draw_lanes_on(const LlamaBridge& bridge, std::int32_t n_vocab, std::int32_t n_lanes,
                         const DrawLimits& limits) {
  if (n_lanes < 2) return {};
  return draw_on(bridge, prepare_lane_kernels(n_vocab, n_lanes, limits));
}

// Which of several rows' exits the host has to see to first.
int urgency(LoopExit exit) noexcept {
  switch (exit) {
    case LoopExit::kNonFinite:
      return 6;
    case LoopExit::kBarred:
      return 5;
    case LoopExit::kAsk:
      return 4;
    case LoopExit::kPause:
      return 3;
    case LoopExit::kSteps:
      return 2;
    case LoopExit::kStopped:
      return 1;
    case LoopExit::kNone:
      break;
  }
  return 0;
}

}  // namespace

DeviceLoop::DeviceLoop(const Model& model, LlamaBridge& bridge, AddGraph graph, DecodeLoop kind,
                       std::chrono::microseconds stall, const DrawLimits& limits,
                       std::int32_t n_lanes)
    : bridge_(bridge),
      graph_(std::move(graph)),
      kind_(kind),
      n_ctx_(model.n_ctx_slot()),
      n_vocab_(model.n_vocab()),
      stall_(stall),
      draw_(draw_on(bridge, prepare_step_kernels(model.n_vocab(), limits))),
      lane_draw_(draw_lanes_on(bridge, model.n_vocab(), n_lanes, limits)),
      masked_draw_(draw_on(bridge, prepare_masked_kernels(model.n_vocab(), n_lanes, limits))),
      controls_(static_cast<std::size_t>(n_lanes)),
      boards_(model.n_vocab(), static_cast<std::size_t>(n_lanes),
              kBoardsPerLane * static_cast<std::size_t>(n_lanes)),
      inputs_(n_lanes, bridge.n_cells()),
      rows_(static_cast<std::size_t>(n_lanes)),
      row_staging_(static_cast<std::size_t>(n_lanes)),
      graphs_(bridge, program(Draws::kFree), window_launch(kind)),
      masked_graphs_(bridge, program(Draws::kMasked), window_launch(kind), kMaskedGraphs),
      stepwise_graphs_(bridge, program(Draws::kStepwise), WindowLaunch::kStep, kStepwiseGraphs) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(n_lanes); ++i) {
    lanes_.emplace_back(model, controls_.place(i));
  }
  flight_.reserve(lanes_.size());
  flight_rows_.reserve(lanes_.size());
  sequences_.reserve(lanes_.size());
}

DeviceLoop::~DeviceLoop() {
  drop();
  cudaStreamSynchronize(bridge_.stream());
}

bool DeviceLoop::launch(std::span<Slot* const> slots, const SamplerOf& sampler_of) {
  try {
    return try_launch(slots, sampler_of);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    drop();
    throw;
  }
}

std::int32_t DeviceLoop::n_steps_left(std::span<Slot* const> slots) const noexcept {
  std::int32_t n = kMaxSteps;
  for (const Slot* slot : slots) {
    n = std::min(n, n_ctx_ - 1 - slot->n_cells());
    if (slot->spec->max_tokens >= 0) n = std::min(n, slot->spec->max_tokens - slot->n_decoded);
  }
  return n;
}

bool DeviceLoop::try_launch(std::span<Slot* const> slots, const SamplerOf& sampler_of) {
  const cudaStream_t stream = bridge_.stream();
  const std::int32_t n = n_steps_left(slots);
  if (n < 1) return false;  // the context is full: a step there would overwrite or skip a position
  const std::optional<Draws> draws = choose_draws(slots);
  if (!draws) return false;
  bridge_.synchronize_context();
  sequences_.clear();
  for (const Slot* slot : slots) sequences_.push_back(slot->sequence);
  std::vector<CellPlan> plans = bridge_.plan(sequences_, n);
  if (plans.front().cells.empty()) return false;

  const std::int32_t n_steps = enter_window(plans);
  if (n_steps < 1) return false;
  draws_ = *draws;
  // Captured before anything is written, and not while the GPU makes an earlier window's steps: the
  // scheduler may place a larger window's tensors anew, and waits for the GPU before it does. No
  // token would be seen until all of those steps are made.
  static_cast<void>(graphs().get(window_));

  stream_is_busy_ = true;
  if (!inputs_.upload(bridge_, slots, plans, window_)) return false;
  take_lanes(slots, sampler_of);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    flight_[i]->seat(*slots[i], sampler_of(*slots[i]), stream);
  }
  flight_rows_.clear();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    flight_rows_.push_back(window_.row_of(plans[i].stream, i));
    const TokenMask* mask = slots[i]->spec->mask.get();
    flight_[i]->obey(is_masked() && mask != nullptr && !mask->waits() ? mask : nullptr);
    flight_[i]->begin(*slots[i], std::move(plans[i]), n_steps);
  }
  const LaneRange range = flight_range();
  controls_.upload(range.first, range.n, stream);
  if (slots.size() > 1 || is_masked()) upload_rows();
  n_launched_ = 0;
  fly();
  return true;
}

std::optional<DeviceLoop::Draws> DeviceLoop::choose_draws(std::span<Slot* const> slots) {
  Draws draws = Draws::kFree;
  for (const Slot* slot : slots) {
    TokenMask* mask = slot->spec->mask.get();
    if (mask == nullptr || mask->waits()) continue;
    if (mask->board() == nullptr) {
      if (std::shared_ptr<MaskBoard> board = boards_.lend()) mask->use(std::move(board));
    }
    const bool has_masks = mask->board() != nullptr && !mask->board()->is_slow();
    if (!has_masks && slots.size() > 1) return std::nullopt;
    draws = has_masks ? Draws::kMasked : Draws::kStepwise;
  }
  return draws;
}

void DeviceLoop::take_lanes(std::span<Slot* const> slots, const SamplerOf& sampler_of) {
  flight_.clear();
  const bool is_alone = slots.size() == 1;
  for (Lane& one : lanes_) {
    // A step of one row knows no other lane than the first.
    const bool stays = std::ranges::find(slots, one.drawn()) != slots.end();
    if (!stays || (is_alone && &one != &lane())) give_back(one, sampler_of);
  }
  for (const Slot* slot : slots) {
    const auto has_it = [slot](const Lane& one) { return one.drawn() == slot; };
    const auto is_free = [this](Lane& one) {
      return one.drawn() == nullptr && std::ranges::find(flight_, &one) == flight_.end();
    };
    auto place = std::ranges::find_if(lanes_, has_it);
    if (place == lanes_.end()) place = std::ranges::find_if(lanes_, is_free);
    flight_.push_back(&*place);
  }
}

void DeviceLoop::upload_rows() {
  const auto n_rows = static_cast<std::size_t>(window_.n_outputs);
  for (std::size_t i = 0; i < n_rows; ++i) row_staging_.data()[i] = LaneRow{};
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    row_staging_.data()[flight_rows_[i]] = flight_[i]->shared_row();
  }
  cuda_check(cudaMemcpyAsync(rows_.data(), row_staging_.data(), n_rows * sizeof(LaneRow),
                             cudaMemcpyHostToDevice, bridge_.stream()),
             "cudaMemcpyAsync");
}

bool DeviceLoop::flies(std::span<Slot* const> slots) const noexcept {
  return std::ranges::equal(flight_, slots, {}, [](const Lane* lane) { return lane->slot(); });
}

DeviceLoop::Progress DeviceLoop::progress() const noexcept {
  Progress all = {.n_steps = kMaxSteps, .exit = LoopExit::kNone};
  bool has_left = true;  // all leave at the same step
  for (const Lane* lane : flight_) {
    const Lane::Progress one = lane->progress();
    all.n_steps = std::min(all.n_steps, one.n_steps);
    has_left = has_left && one.exit != LoopExit::kNone;
    if (urgency(one.exit) > urgency(all.exit)) all.exit = one.exit;
  }
  if (!has_left) all.exit = LoopExit::kNone;
  return all;
}

void DeviceLoop::pause() noexcept {
  for (Lane* lane : flight_) lane->pause();
}

void DeviceLoop::resume() {
  n_launched_ = n_taken();
  for (Lane* lane : flight_) lane->go_on();
  // After whatever was launched ahead, which does nothing as long as an exit is set.
  const LaneRange range = flight_range();
  controls_.clear_exits(range.first, range.n, bridge_.stream());
  fly();
}

DeviceLoop::LaneRange DeviceLoop::flight_range() const noexcept {
  LaneRange range{.first = lanes_.size(), .n = 0};
  std::size_t i = 0;
  for (const Lane& lane : lanes_) {
    if (std::ranges::find(flight_, &lane) != flight_.end()) {
      range.first = std::min(range.first, i);
      range.n = i + 1 - range.first;
    }
    ++i;
  }
  return range;
}

void DeviceLoop::ask_to_leave() noexcept {
  for (Lane* lane : flight_) lane->ask_to_leave();
}

void DeviceLoop::fly() {
  stream_is_busy_ = true;
  marker_.clear();  // what it marks comes before these steps
  pacer_.launched(StepPacer::Clock::now());
  if (is_stepwise()) {
    launch_steps(1);
  } else if (kind_ == DecodeLoop::kDevice) {
    cuda_check(cudaGraphLaunch(graphs().get(window_), bridge_.stream()), "cudaGraphLaunch");
    n_launched_ = flight_.front()->n_steps();
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
    if (n_launched_ == n_taken()) throw;
    return;  // as below
  }
  marker_.clear();
  for (; n > 0 && n_launched_ < flight_.front()->n_steps(); --n, ++n_launched_) {
    const cudaError_t status = cudaGraphLaunch(graph, bridge_.stream());
    if (status == cudaSuccess) continue;
    // Steps in the queue can still be made; this one is tried again when they are.
    if (n_launched_ == n_taken()) cuda_check(status, "cudaGraphLaunch");
    cudaGetLastError();
    return;
  }
}

void DeviceLoop::launch_ahead() {
  if (!runs_ahead()) return;
  launch_steps(n_taken() + kQueuedSteps - n_launched_);
}

void DeviceLoop::draw_again(Lane& lane, Sampler& sampler, std::span<const std::uint32_t> mask) {
  StepSite site{.stream = bridge_.stream(),
                .window = window_,
                .logits = graphs().logits(window_),
                .condition = {},
                .loops = false};
  if (site.logits == nullptr) throw std::runtime_error("the decode graph's memory is gone");
  const auto i = static_cast<std::size_t>(std::ranges::find(flight_, &lane) - flight_.begin());
  const StepKernelArguments its = arguments(site, lane, flight_rows_[i]);
  lane.draw_again(sampler, mask, its.rows[0].logits, site.stream);
  launch_step_kernels(its, draw_, site.stream);
  marker_.clear();
  stream_is_busy_ = true;
  pacer_.launched(StepPacer::Clock::now());
}

void DeviceLoop::land() {
  for (std::size_t i = 0; i < flight_.size(); ++i) {
    try {
      flight_[i]->land(bridge_);
    } catch (...) {
      drop();  // those behind it; the GPU has left
      throw;
    }
  }
  flight_.clear();
}

void DeviceLoop::drop() noexcept {
  for (Lane* lane : flight_) {
    lane->ask_to_leave();
    lane->drop();
  }
  flight_.clear();
}

void DeviceLoop::wait_for_stream() {
  if (!stream_is_busy_) return;
  cuda_check(cudaStreamSynchronize(bridge_.stream()), "cudaStreamSynchronize");
  stream_is_busy_ = false;
}

void DeviceLoop::unseat(const Slot& slot) noexcept {
  for (Lane& lane : lanes_) lane.unseat(slot);
}

void DeviceLoop::unseat() noexcept {
  for (Lane& lane : lanes_) lane.unseat();
}

void DeviceLoop::give_back(Lane& lane, const SamplerOf& sampler_of) {
  if (const Slot* drawn = lane.drawn(); drawn != nullptr) {
    lane.download(sampler_of(*drawn), bridge_.stream());
  }
  lane.unseat();
}

void DeviceLoop::give_back(const SamplerOf& sampler_of) {
  wait_for_stream();
  for (Lane& lane : lanes_) give_back(lane, sampler_of);
}

}  // namespace unpaced
