#include "device/stepper/device_stepper.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "decode/event_publisher.h"
#include "device/card/gpu_test.h"
#include "device/loop/self_test/lane_trials.h"
#include "device/loop/self_test/loop_self_test.h"
#include "grammar/token_mask.h"
#include "host/token_outcome.h"

namespace unpaced {
namespace {

bool is_any_active(std::span<const Slot> slots) {
  return std::ranges::any_of(slots, [](const Slot& slot) { return slot.active(); });
}

bool is_any_prompt(std::span<const Slot> slots) {
  return std::ranges::any_of(
      slots, [](const Slot& slot) { return slot.steps() && slot.phase != SlotPhase::kDecode; });
}

}  // namespace

DeviceStepper::DeviceStepper(std::shared_ptr<Model> model, const EngineConfig& config,
                             Counters& counters, DecodeLoop loop, const DrawLimits& limits,
                             std::int32_t n_lanes)
    : model_(std::move(model)),
      counters_(counters),
      host_(model_, config, counters),
      bridge_(model_->context(), {.n_tokens = n_lanes, .n_outputs = n_lanes}),
      sequences_(model_->context(), bridge_),
      stall_(config.stall_us),
      kernels_(static_cast<StepKernels>(config.kernels)),
      step_(bridge_, kernels_, config.kernel_choices, config.deterministic),
      loop_(
          *model_, bridge_,
          [this](StepProgram& program, const LlamaBridge& bridge) {
            step_.add_to(program, bridge);
          },
          loop, stall_, limits, n_lanes),
      policy_(host_, counters, config.n_slots),
      sampler_of_([this](const Slot& slot) -> Sampler& { return host_.sampler(slot); }) {
  members_.reserve(static_cast<std::size_t>(n_lanes));
  taken_.reserve(static_cast<std::size_t>(n_lanes));
  outcomes_.reserve(static_cast<std::size_t>(n_lanes));
  host_.use(sequences_);
  if (host_.cell_store() != nullptr && DeviceCellStore::can_copy(bridge_)) {
    cells_.emplace(*host_.cell_store(), bridge_);
  }
}

void DeviceStepper::prepare(std::int32_t n_slots) {
  GpuTest watched(counters_);
  watched.begin();
  step_.prepare(bridge_, stall_);
  watched.begin();
  test(n_slots);
  watched.begin();
  if (loop_.n_lanes() > 1) {
    step_.prepare_rows(bridge_, static_cast<std::int32_t>(loop_.n_lanes()), stall_);
    watched.begin();
    lane_steps_ = LaneTrials(*model_, bridge_, loop_, step_, stall_).run(kernels_);
    if (step_.has_rows_as_alone()) policy_.limit_company(step_.n_row_cells());
  }
  watched.begin();
  loop_.prepare_windows();
  watched.end();
  counters_.n_window_graphs.set(loop_.n_graphs());
}

void DeviceStepper::test(std::int32_t n_slots) {
  try {
    test_loop(*model_, bridge_, loop_, n_slots);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception& e) {
    if (!step_.has_own()) throw;
    // Each phase has ggml's bits, and the step has not: ggml's kernels for all of it.
    step_.give_up(e.what(), bridge_);
    loop_.drop();
    loop_.wait_for_stream();
    loop_.unseat();
    loop_.forget_graphs();
    test_loop(*model_, bridge_, loop_, n_slots);
  }
}

std::int32_t DeviceStepper::begin(Slot& slot) {
  loop_.wait_for_stream();
  loop_.unseat(slot);
  return host_.begin(slot);
}

void DeviceStepper::forget(Slot& slot) {
  loop_.drop();
  loop_.wait_for_end();  // its cells must not be freed while the GPU writes them
  loop_.unseat(slot);
  host_.forget(slot);
}

std::size_t DeviceStepper::state_bytes(const Slot& slot) { return host_.state_bytes(slot); }

bool DeviceStepper::copy_state(const Slot& slot, std::span<std::byte> to) {
  loop_.wait_for_stream();
  return host_.copy_state(slot, to);
}

bool DeviceStepper::restore_state(Slot& slot, const SlotState& state) {
  loop_.wait_for_stream();
  loop_.unseat(slot);
  return host_.restore_state(slot, state);
}

bool DeviceStepper::use_idle_time() {
  if (prompts_ != nullptr && prompts_->use_idle_time()) return true;
  const bool was_used = loop_.use_idle_time();
  if (was_used) counters_.n_window_graphs.set(loop_.n_graphs());
  return was_used;
}

void DeviceStepper::step(std::span<Slot> slots, EventPublisher& events) {
  if (step_.has_rows_as_alone() && is_any_prompt(slots) && step_beside_prompt(slots, events)) {
    return host_.step_prompts(slots, events);
  }
  find_members(slots, loop_.n_lanes(), members_);
  if (loop_.is_flying() && !loop_.flies(members_)) {
    settle(events);
    if (!is_any_active(slots)) return;
    find_members(slots, loop_.n_lanes(), members_);
  }
  const HostReason reason = policy_.why_host(members_);
  if (reason != HostReason::kNone) {
    step_on_host(slots, reason, events);
    return;
  }
  if (!loop_.is_flying() && !launch(members_)) {  // no cell is free: llama_decode reports it
    step_on_host(slots, HostReason::kNone, events);
    return;
  }
  const DeviceLoop::Progress news = loop_.wait_for_news(true);
  if (!loop_.is_news(news)) return;  // the decode thread's loop is wanted
  take(news, events);
  // At once, so that the GPU does not wait while the decode thread looks for commands.
  if (loop_.is_paused()) {
    go_on([this] { loop_.resume(); });
  } else if (!loop_.is_flying()) {
    find_members(slots, loop_.n_lanes(), members_);
    if (!members_.empty() && policy_.why_host(members_) == HostReason::kNone) {
      static_cast<void>(launch(members_));  // where it fails the next step says so
    }
  }
  host_.clean(slots);
}

bool DeviceStepper::step_beside_prompt(std::span<Slot> slots, EventPublisher& events) {
  settle(events);
  find_decoding(slots, loop_.n_lanes(), members_);
  if (members_.empty() || policy_.why_host(members_) != HostReason::kNone) return false;
  if (!launch(members_)) return false;
  settle(events);  // after one step
  loop_.wait_for_stream();
  return true;
}

bool DeviceStepper::launch(std::span<Slot* const> members) {
  try {
    const bool is_launched = loop_.launch(members, sampler_of_);
    counters_.n_window_graphs.set(loop_.n_graphs());
    return is_launched;
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    // Mostly for want of device memory. Nothing runs; the host can do what the GPU cannot.
    policy_.ground(*members.front()->spec);
    return false;
  }
}

template <class Start>
void DeviceStepper::go_on(Start start) {
  const RequestSpec& spec = *loop_.flight().front()->slot()->spec;
  try {
    start();
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    policy_.ground(spec);
    loop_.land();
  }
}

void DeviceStepper::settle(EventPublisher& events) {
  while (loop_.is_flying()) {
    if (loop_.is_paused()) return loop_.land();
    loop_.ask_to_leave();
    take(loop_.wait_for_news(false), events);
  }
}

void DeviceStepper::take(const DeviceLoop::Progress& progress, EventPublisher& events) {
  if (loop_.is_stepwise() && !admit(progress, events)) return;
  const bool is_pause = progress.exit == LoopExit::kPause || progress.exit == LoopExit::kAsk ||
                        (loop_.is_stepwise() && progress.exit == LoopExit::kNone);
  const bool has_left = is_pause || progress.exit != LoopExit::kNone;
  for (std::int32_t n = progress.n_steps - loop_.n_taken(); n > 0; --n) {
    if (n == 1 && has_left && loop_.is_masked() && !answer_questions()) return;
    take_step(n == 1 && has_left, is_pause, events);
  }
  if (progress.exit == LoopExit::kNone && loop_.runs_ahead()) {
    go_on([this] { loop_.launch_ahead(); });
  }
}

void DeviceStepper::take_step(bool has_left, bool is_pause, EventPublisher& events) {
  taken_.clear();
  outcomes_.clear();
  for (Lane* lane : loop_.flight()) {
    bool must_land = false;
    const Taken& taken = taken_.emplace_back(take_token(*lane, must_land));
    outcomes_.push_back({.has_ended = taken.reason != FinishReason::kNone || must_land,
                         .has_steps_left = lane->has_steps_left()});
  }
  if (taken_.size() > 1) {
    counters_.n_lane_steps.add(1);
    counters_.n_lane_tokens.add(taken_.size());
  }
  // Before the last events, which may end requests: the KV must know their tokens by then.
  if (has_left) may_resume(is_pause, outcomes_) ? loop_.pause() : loop_.land();
  for (const Taken& taken : taken_) publish(taken, events);
}

DeviceStepper::Taken DeviceStepper::take_token(Lane& lane, bool& must_land) {
  Taken taken{.lane = &lane,
              .slot = lane.slot(),
              .step = 0,
              .token = -1,
              .reason = FinishReason::kNonFinite};
  if (const FinishReason end = end_under_grammar(lane); end != FinishReason::kNone) {
    lane.take_input();
    taken.reason = end;
    return taken;
  }
  if (!lane.has_token()) return taken;
  Slot& slot = *taken.slot;
  const Lane::StepToken next = lane.take();
  taken.step = next.step;
  taken.token = next.token;
  host_.sampler(slot).accept(taken.token);
  must_land = follow(lane, taken.token);
  taken.reason = judge_token(slot, taken.token, *model_);
  return taken;
}

void DeviceStepper::publish(const Taken& taken, EventPublisher& events) {
  Slot& slot = *taken.slot;
  if (taken.token < 0) {
    if (taken.reason == FinishReason::kNonFinite) {
      forget(slot);
      host_.taint();
    }
    events.finished(slot, taken.reason);
    return;
  }
  counters_.n_tokens_device.add(1);
  const float logprob = taken.lane->publish_logprobs(taken.step, slot, events);
  publish_token(slot, taken.token, logprob, taken.reason, counters_, events);
}

void DeviceStepper::step_on_host(std::span<Slot> slots, HostReason reason, EventPublisher& events) {
  // The GPU's tokens come first, and they may be the last ones: never two at work on one slot.
  if (loop_.is_flying()) {
    settle(events);
    if (!is_any_active(slots)) return;
  }
  policy_.count(slots, reason);
  loop_.give_back(sampler_of_);
  host_.step(slots, events);
}

}  // namespace unpaced
