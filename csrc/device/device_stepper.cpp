#include "device/device_stepper.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "device/sample_kernels.h"
#include "token_outcome.h"

namespace unpaced {
namespace {

// llama.cpp's attention reads cells in multiples of this (llama_kv_cache::get_n_kv).
constexpr std::int32_t kWindowCells = 256;
// kAhead: steps that the GPU has in its queue at most.
constexpr std::int32_t kQueuedSteps = 3;
// No step of any model takes so long; then the stream is asked what became of it.
constexpr std::chrono::milliseconds kSuspicious{2000};

std::int32_t window_of(std::int32_t n_used, std::int32_t n_cells) noexcept {
  const std::int32_t padded = (n_used + kWindowCells - 1) / kWindowCells * kWindowCells;
  return std::min(n_cells, std::max(kWindowCells, padded));
}

}  // namespace

DeviceStepper::DeviceStepper(std::shared_ptr<Model> model, const EngineConfig& config,
                             Counters& counters, DecodeLoop loop)
    : model_(std::move(model)),
      counters_(counters),
      loop_(loop),
      host_(model_, config, counters),
      bridge_(model_->context()),
      sampler_(model_->n_vocab(), model_->n_ctx_slot()),
      group_best_(static_cast<std::size_t>(n_groups(model_->n_vocab()))),
      illegal_(1),
      end_tokens_(static_cast<std::size_t>(model_->n_vocab()) / 32 + 1),
      control_(1),
      control_staging_(1),
      mask_staging_(static_cast<std::size_t>(bridge_.n_cells())),
      input_staging_(4),
      mailbox_(1),
      graphs_(bridge_, arguments(), loop == DecodeLoop::kDevice) {
  prepare_step_kernels(model_->n_vocab());
  std::vector<std::uint32_t> end_tokens(end_tokens_.size(), 0);
  for (TokenId token = 0; token < model_->n_vocab(); ++token) {
    if (model_->is_eog(token)) end_tokens[static_cast<std::size_t>(token / 32)] |= 1U << token % 32;
  }
  cuda_check(cudaMemcpy(end_tokens_.data(), end_tokens.data(),
                        end_tokens.size() * sizeof(std::uint32_t), cudaMemcpyHostToDevice),
             "cudaMemcpy");
  cuda_check(cudaMemset(illegal_.data(), 0, sizeof(std::int32_t)), "cudaMemset");
  flight_.inputs.reserve(kMaxSteps);
  self_test();
}

DeviceStepper::~DeviceStepper() {
  stop_flight();
  cudaStreamSynchronize(bridge_.stream());
}

StepKernelArguments DeviceStepper::arguments() const noexcept {
  return {.logits = nullptr,
          .n_vocab = model_->n_vocab(),
          .group_best = group_best_.data(),
          .illegal = illegal_.data(),
          .end_tokens = end_tokens_.data(),
          .sampling = sampler_.device(),
          .control = control_.data(),
          .mailbox = mailbox_.device(),
          .inputs = bridge_.inputs(),
          .loop = {},
          .loops = false};
}

std::int32_t DeviceStepper::begin(Slot& slot) {
  wait_for_stream();
  if (drawn_on_device_ == &slot) drawn_on_device_ = nullptr;
  return host_.begin(slot);
}

void DeviceStepper::forget(Slot& slot) noexcept {
  stop_flight();
  cudaStreamSynchronize(bridge_.stream());
  stream_is_busy_ = false;
  if (drawn_on_device_ == &slot) drawn_on_device_ = nullptr;
  host_.forget(slot);
}

std::size_t DeviceStepper::state_bytes(const Slot& slot) { return host_.state_bytes(slot); }

bool DeviceStepper::copy_state(const Slot& slot, std::span<std::byte> to) {
  wait_for_stream();
  return host_.copy_state(slot, to);
}

bool DeviceStepper::restore_state(Slot& slot, const SlotState& state) {
  wait_for_stream();
  if (drawn_on_device_ == &slot) drawn_on_device_ = nullptr;
  return host_.restore_state(slot, state);
}

Slot* DeviceStepper::lone_decoder(std::span<Slot> slots) const noexcept {
  Slot* lone = nullptr;
  for (Slot& slot : slots) {
    if (!slot.active()) continue;
    if (lone != nullptr || slot.phase != SlotPhase::kDecode) return nullptr;
    lone = &slot;
  }
  return lone;
}

bool DeviceStepper::can_fly(const Slot& slot) {
  // The last cell is reached on the host: it ends the request or shifts the context.
  if (slot.n_cells() + 1 >= n_ctx()) return false;
  return DeviceSampler::refusal(*slot.spec, host_.sampler(slot)) == nullptr;
}

void DeviceStepper::step(std::span<Slot> slots, EventPublisher& events) {
  Slot* lone = lone_decoder(slots);
  if (flight_.slot != nullptr && flight_.slot != lone) settle(events);
  if (lone == nullptr || !lone->active() || !can_fly(*lone)) {
    if (std::none_of(slots.begin(), slots.end(), [](const Slot& s) { return s.active(); })) return;
    step_on_host(slots, events);
    return;
  }
  if (flight_.slot == nullptr) {
    launch(*lone);
    if (flight_.slot == nullptr) {  // no cell is free: llama_decode reports it
      step_on_host(slots, events);
      return;
    }
  }
  take(wait_for_news(), events);
  // At once, so that the GPU does not wait while the loop looks for commands.
  if (flight_.slot == nullptr && lone->active()) launch(*lone);
}

void DeviceStepper::settle(EventPublisher& events) {
  while (flight_.slot != nullptr) {
    mailbox_.data()->stop = 1;
    take(wait_for_news(), events);
  }
}

void DeviceStepper::launch(Slot& slot) {
  const cudaStream_t stream = bridge_.stream();
  const std::int32_t position = slot.n_cells();
  std::int32_t n = std::min(kMaxSteps, model_->n_ctx_slot() - 1 - position);
  if (slot.spec->max_tokens >= 0) n = std::min(n, slot.spec->max_tokens - slot.n_decoded);
  bridge_.synchronize_context();
  CellPlan plan = bridge_.plan(slot.id, position, std::max(n, 1));
  if (plan.cells.empty()) return;

  std::int32_t n_used = std::max(plan.n_used, plan.cells.front() + 1);
  const Window window{plan.stream, window_of(n_used, bridge_.n_cells())};
  std::size_t n_steps = 0;
  for (const std::int32_t cell : plan.cells) {
    n_used = std::max(n_used, cell + 1);
    if (window_of(n_used, bridge_.n_cells()) != window.n_kv) break;
    ++n_steps;
  }
  const cudaGraphExec_t graph = graphs_.get(window);

  if (drawn_on_device_ != &slot || drawn_request_ != slot.spec->id) {
    sampler_.upload(host_.sampler(slot), stream);
    drawn_on_device_ = &slot;
    drawn_request_ = slot.spec->id;
  }
  upload_inputs(slot, plan, window);
  LoopControl& control = *control_staging_.data();
  control.n_steps = static_cast<std::int32_t>(n_steps);
  control.position = position;
  control.first_cell = plan.first_cell;
  control.step = 0;
  control.exited = 0;
  std::copy_n(plan.cells.begin(), n_steps, control.cell);
  for (std::size_t i = 0; i < n_steps; ++i) mailbox_.data()->entry[i] = 0;
  mailbox_.data()->stop = 0;
  cuda_check(
      cudaMemcpyAsync(control_.data(), &control, sizeof control, cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");

  flight_.slot = &slot;
  flight_.position = position;
  flight_.n_steps = control.n_steps;
  flight_.n_launched = 0;
  flight_.n_published = 0;
  flight_.plan = std::move(plan);
  flight_.window = window;
  flight_.inputs.clear();
  stream_is_busy_ = true;
  pacer_.launched();
  if (loop_ == DecodeLoop::kDevice) {
    cuda_check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    flight_.n_launched = flight_.n_steps;
  } else {
    launch_steps(kQueuedSteps);
  }
  prepare_next_window();
}

void DeviceStepper::upload_inputs(const Slot& slot, const CellPlan& plan, const Window& window) {
  const std::span<std::uint16_t> mask(mask_staging_.data(), static_cast<std::size_t>(window.n_kv));
  bridge_.fill_mask(slot.id, slot.n_cells(), mask);
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
  const cudaGraphExec_t graph = graphs_.get(flight_.window);
  for (; n > 0 && flight_.n_launched < flight_.n_steps; --n, ++flight_.n_launched) {
    cuda_check(cudaGraphLaunch(graph, bridge_.stream()), "cudaGraphLaunch");
  }
}

void DeviceStepper::prepare_next_window() {
  // The GPU is busy meanwhile.
  const std::int32_t last_cell = flight_.plan.cells[static_cast<std::size_t>(flight_.n_steps - 1)];
  const std::int32_t n_kv = std::min(flight_.window.n_kv + kWindowCells, bridge_.n_cells());
  const Window next{flight_.window.stream, n_kv};
  if (last_cell + 1 == flight_.window.n_kv && !graphs_.has(next)) graphs_.get(next);
}

DeviceStepper::Progress DeviceStepper::progress() const noexcept {
  Progress now{flight_.n_published, LoopExit::kNone};
  while (now.n_tokens < flight_.n_steps && now.exit == LoopExit::kNone) {
    // One word, written by one store: no other memory hangs on it.
    const std::uint64_t entry = mailbox_.data()->entry[now.n_tokens];
    if (entry == 0) break;
    now.exit = entry_exit(entry);
    now.n_tokens += now.exit == LoopExit::kNonFinite ? 0 : 1;
  }
  return now;
}

DeviceStepper::Progress DeviceStepper::wait_for_news() {
  for (;;) {
    const Progress now = progress();
    if (now.n_tokens > flight_.n_published || now.exit != LoopExit::kNone) {
      pacer_.arrived(now.n_tokens - flight_.n_published);
      return now;
    }
    if (pacer_.silence() > kSuspicious) {
      const cudaError_t status = cudaStreamQuery(bridge_.stream());
      if (status != cudaErrorNotReady && progress().n_tokens == flight_.n_published &&
          progress().exit == LoopExit::kNone) {
        flight_.slot = nullptr;
        cuda_check(status, "the decode loop");
        throw std::runtime_error("the decode loop on the GPU ended without a result");
      }
    }
    pacer_.nap();
  }
}

void DeviceStepper::take(const Progress& progress, EventPublisher& events) {
  Slot& slot = *flight_.slot;
  const bool lands = progress.exit != LoopExit::kNone && progress.exit != LoopExit::kNonFinite;
  while (flight_.n_published < progress.n_tokens) {
    const TokenId token = entry_token(mailbox_.data()->entry[flight_.n_published++]);
    flight_.inputs.push_back(slot.next_token);
    slot.cells.push_back(slot.next_token);
    host_.sampler(slot).accept(token);
    if (flight_.n_published == progress.n_tokens && lands) {
      // Before the last event, which may end the request: the KV must know its tokens by then.
      bridge_.commit(slot.id, flight_.position, flight_.plan, flight_.inputs);
      flight_.slot = nullptr;
    }
    counters_.n_tokens_device.add(1);
    publish_token(slot, token, 0.0F, *model_, counters_, events);
  }
  if (progress.exit == LoopExit::kNonFinite) {
    forget(slot);
    events.finished(slot, FinishReason::kNonFinite);
  } else if (progress.exit == LoopExit::kNone && loop_ == DecodeLoop::kAhead) {
    launch_steps(flight_.n_published + kQueuedSteps - flight_.n_launched);
  }
}

void DeviceStepper::stop_flight() noexcept {
  if (flight_.slot == nullptr) return;
  mailbox_.data()->stop = 1;
  flight_.slot = nullptr;
}

void DeviceStepper::wait_for_stream() {
  if (!stream_is_busy_) return;
  cuda_check(cudaStreamSynchronize(bridge_.stream()), "cudaStreamSynchronize");
  stream_is_busy_ = false;
}

void DeviceStepper::step_on_host(std::span<Slot> slots, EventPublisher& events) {
  wait_for_stream();
  const Slot* drawn = std::exchange(drawn_on_device_, nullptr);
  if (drawn != nullptr && drawn->active() && drawn->spec->id == drawn_request_) {
    sampler_.download(host_.sampler(*drawn), bridge_.stream());
  }
  host_.step(slots, events);
}

}  // namespace unpaced
