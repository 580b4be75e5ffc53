#include "device/loop/device_stepper.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "device/draw/sample_kernels.h"
#include "grammar/token_mask.h"
#include "host/token_outcome.h"

namespace unpaced {

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
      pause_tokens_(*model_),
      noted_(static_cast<std::size_t>(config.n_slots)),
      control_(1),
      control_staging_(1),
      mask_staging_(static_cast<std::size_t>(bridge_.n_cells())),
      input_staging_(4),
      mailbox_(1),
      masked_row_(model_->n_vocab()),
      graphs_(bridge_, step_program(false),
              loop == DecodeLoop::kDevice ? WindowLaunch::kLoop : WindowLaunch::kGuardedStep),
      masked_graphs_(bridge_, step_program(true), WindowLaunch::kStep),
      stall_(config.stall_us) {
  prepare_step_kernels(model_->n_vocab());
  cuda_check(cudaMemset(illegal_.data(), 0, sizeof(std::int32_t)), "cudaMemset");
  flight_.inputs.reserve(kMaxSteps);
  if (host_.cell_store() != nullptr && DeviceCellStore::can_copy(bridge_)) {
    cells_.emplace(*host_.cell_store(), bridge_);
  }
  self_test();
  counters_.n_window_graphs.set(graphs_.size());
}

DeviceStepper::~DeviceStepper() {
  stop_flight();
  cudaStreamSynchronize(bridge_.stream());
}

MakeStepProgram DeviceStepper::step_program(bool keeps_row) const {
  return [this, keeps_row](const LlamaBridge& bridge) {
    StepProgram program;
    program.guard_by([this](const StepSite& site) {
      launch_step_guard(control_.data(), site.condition, site.stream);
    });
    program.by_ggml(bridge.nodes().end);
    if (keeps_row) {
      program.then([this](const StepSite& site) { masked_row_.keep(site.logits, site.stream); });
    }
    program.then([this](const StepSite& site) {
      StepKernelArguments at = arguments(site.window, site.logits);
      at.loop = site.condition;
      at.loops = site.loops;
      launch_step_kernels(at, site.stream);
    });
    return program;
  };
}

StepKernelArguments DeviceStepper::arguments(const Window& window, float* logits) const noexcept {
  return {.rows = {{.logits = logits,
                    .n_vocab = model_->n_vocab(),
                    .group_best = group_best_.data(),
                    .illegal = illegal_.data(),
                    .pause_tokens = pause_tokens_.device(),
                    .sampling = sampler_.device(),
                    .control = control_.data(),
                    .mailbox = mailbox_.device(),
                    .inputs = bridge_.inputs().of_row(0, window.n_kv)}},
          .loop = {},
          .loops = false};
}

std::int32_t DeviceStepper::begin(Slot& slot) {
  wait_for_stream();
  if (drawn_on_device_ == &slot) drawn_on_device_ = nullptr;
  return host_.begin(slot);
}

void DeviceStepper::forget(Slot& slot) {
  stop_flight();
  wait_for_end();  // its cells must not be freed while the GPU writes them
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

HostReason DeviceStepper::why_host(const Slot& slot) {
  // The last cell is reached on the host: it ends the request or shifts the context.
  if (slot.n_cells() + 1 >= n_ctx()) return HostReason::kContextEnd;
  const RequestSpec& spec = *slot.spec;
  if (spec.id == grounded_) return HostReason::kLaunch;
  if (spec.reasoning_budget != nullptr) return HostReason::kReasoning;
  if (!spec.stop.empty() && spec.pause_tokens == nullptr) return HostReason::kStopLength;
  // A line is looked at with tokens that come after it: no set of tokens to pause at tells when.
  if (!spec.limits.empty()) return HostReason::kTextLimits;
  return DeviceSampler::refusal(spec, host_.sampler(slot));
}

void DeviceStepper::note(const Slot& slot, HostReason reason) noexcept {
  RequestId& noted = noted_[static_cast<std::size_t>(slot.id)];
  if (noted == slot.spec->id) return;
  noted = slot.spec->id;
  counters_.n_requests_host[static_cast<std::size_t>(reason)].add(1);
}

void DeviceStepper::step(std::span<Slot> slots, EventPublisher& events) {
  Slot* lone = lone_decoder(slots);
  if (flight_.slot != nullptr && flight_.slot != lone) {
    settle(events);
    lone = lone_decoder(slots);
    if (std::none_of(slots.begin(), slots.end(), [](const Slot& s) { return s.active(); })) return;
  }
  // A slot that waits for its grammar since it had company goes on where it is.
  const bool is_shared = lone == nullptr || host_.is_held(*lone);
  const HostReason reason = is_shared ? HostReason::kShared : why_host(*lone);
  if (reason != HostReason::kNone) {
    step_on_host(slots, reason, events);
    return;
  }
  if (flight_.slot == nullptr && !launch(*lone)) {  // no cell is free: llama_decode reports it
    step_on_host(slots, HostReason::kNone, events);
    return;
  }
  const Progress news = wait_for_news(true);
  if (!is_news(news)) return;  // the loop is wanted
  take(news, events);
  // At once, so that the GPU does not wait while the loop looks for commands.
  if (flight_.is_paused) {
    resume();
  } else if (flight_.slot == nullptr && lone->active() && why_host(*lone) == HostReason::kNone) {
    static_cast<void>(launch(*lone));  // where it fails the next step says so
  }
  host_.clean(slots);
}

void DeviceStepper::settle(EventPublisher& events) {
  while (flight_.slot != nullptr) {
    if (flight_.is_paused) return land();
    mailbox_.data()->stop = 1;
    take(wait_for_news(false), events);
  }
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

void DeviceStepper::take(const Progress& progress, EventPublisher& events) {
  Slot& slot = *flight_.slot;
  if (flight_.is_stepwise && !admit(progress, events)) return;
  const bool may_go_on = progress.exit == LoopExit::kPause ||
                         (flight_.is_stepwise && progress.exit == LoopExit::kNone);
  const bool has_left =
      may_go_on || progress.exit == LoopExit::kSteps || progress.exit == LoopExit::kStopped;
  while (flight_.n_published < progress.n_tokens) {
    const std::int32_t step = flight_.n_published++;
    const TokenId token = entry_token(mailbox_.data()->entry[step]);
    flight_.inputs.push_back(slot.next_token);
    slot.cells.push_back(slot.next_token);
    host_.sampler(slot).accept(token);
    // Of a grammar that waits: the tokens that can end its wait are among the pause tokens.
    const bool is_free = !flight_.is_stepwise && slot.spec->mask != nullptr;
    if (is_free) slot.spec->mask->accept(token);
    const bool is_triggered = is_free && !slot.spec->mask->waits();
    const FinishReason reason = judge_token(slot, token, *model_);
    if (flight_.n_published == progress.n_tokens && has_left) {
      flight_.is_paused = may_go_on && reason == FinishReason::kNone &&
                          flight_.n_published < flight_.n_steps &&
                          !is_triggered;  // from here on a step a launch
      // Before the last event, which may end the request: the KV must know its tokens by then.
      if (!flight_.is_paused) land();
    }
    counters_.n_tokens_device.add(1);
    const float logprob = sampler_.publish_logprobs(step, slot, events);
    publish_token(slot, token, logprob, reason, counters_, events);
  }
  if (progress.exit == LoopExit::kNonFinite) {
    forget(slot);
    host_.taint();
    events.finished(slot, FinishReason::kNonFinite);
  } else if (progress.exit == LoopExit::kNone && loop_ == DecodeLoop::kAhead &&
             !flight_.is_stepwise) {
    launch_ahead();
  }
}

void DeviceStepper::land() {
  const Slot& slot = *std::exchange(flight_.slot, nullptr);
  flight_.is_paused = false;
  bridge_.commit(slot.sequence, flight_.position, flight_.plan, flight_.inputs);
}

void DeviceStepper::stop_flight() noexcept {
  if (flight_.slot == nullptr) return;
  mailbox_.data()->stop = 1;
  flight_.slot = nullptr;
  flight_.is_paused = false;
}

void DeviceStepper::wait_for_stream() {
  if (!stream_is_busy_) return;
  cuda_check(cudaStreamSynchronize(bridge_.stream()), "cudaStreamSynchronize");
  stream_is_busy_ = false;
}

void DeviceStepper::step_on_host(std::span<Slot> slots, HostReason reason, EventPublisher& events) {
  // The GPU's tokens come first, and they may be the last ones: never two at work on one slot.
  if (flight_.slot != nullptr) {
    settle(events);
    if (std::none_of(slots.begin(), slots.end(), [](const Slot& s) { return s.active(); })) return;
  }
  for (const Slot& slot : slots) {
    if (slot.phase == SlotPhase::kDecode && reason != HostReason::kNone) note(slot, reason);
  }
  wait_for_stream();
  const Slot* drawn = std::exchange(drawn_on_device_, nullptr);
  if (drawn != nullptr && drawn->active() && drawn->spec->id == drawn_request_) {
    sampler_.download(host_.sampler(*drawn), bridge_.stream());
  }
  host_.step(slots, events);
}

}  // namespace unpaced
