#include "device/loop/device_stepper.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "decode/event_publisher.h"
#include "device/draw/sample_kernels.h"
#include "device/loop/loop_self_test.h"
#include "grammar/token_mask.h"
#include "host/token_outcome.h"

namespace unpaced {
namespace {

bool is_any_active(std::span<const Slot> slots) {
  return std::ranges::any_of(slots, [](const Slot& slot) { return slot.active(); });
}

}  // namespace

DeviceStepper::DeviceStepper(std::shared_ptr<Model> model, const EngineConfig& config,
                             Counters& counters, DecodeLoop loop, const DrawLimits& limits)
    : model_(std::move(model)),
      counters_(counters),
      host_(model_, config, counters),
      bridge_(model_->context()),
      stall_(config.stall_us),
      step_(bridge_, static_cast<StepKernels>(config.kernels), config.kernel_choices),
      loop_(
          *model_, bridge_,
          [this](StepProgram& program, const LlamaBridge& bridge) {
            step_.add_to(program, bridge);
          },
          loop, stall_, limits),
      policy_(host_, counters, config.n_slots) {
  if (host_.cell_store() != nullptr && DeviceCellStore::can_copy(bridge_)) {
    cells_.emplace(*host_.cell_store(), bridge_);
  }
}

void DeviceStepper::prepare(std::int32_t n_slots) {
  const CardCode code = step_kernel_code();
  // The driver may compile kernels for minutes before it launches them.
  const bool is_watched = code.ptx == code.binary;
  const auto begin_test = [&] {
    if (is_watched) counters_.gpu_test_us.set(static_cast<std::uint64_t>(steady_us()));
  };
  begin_test();
  step_.prepare(bridge_, stall_);
  begin_test();
  test(n_slots);
  begin_test();
  loop_.prepare_windows();
  counters_.gpu_test_us.set(0);
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
    lane().unseat();
    loop_.forget_graphs();
    test_loop(*model_, bridge_, loop_, n_slots);
  }
}

std::int32_t DeviceStepper::begin(Slot& slot) {
  loop_.wait_for_stream();
  lane().unseat(slot);
  return host_.begin(slot);
}

void DeviceStepper::forget(Slot& slot) {
  loop_.drop();
  loop_.wait_for_end();  // its cells must not be freed while the GPU writes them
  lane().unseat(slot);
  host_.forget(slot);
}

std::size_t DeviceStepper::state_bytes(const Slot& slot) { return host_.state_bytes(slot); }

bool DeviceStepper::copy_state(const Slot& slot, std::span<std::byte> to) {
  loop_.wait_for_stream();
  return host_.copy_state(slot, to);
}

bool DeviceStepper::restore_state(Slot& slot, const SlotState& state) {
  loop_.wait_for_stream();
  lane().unseat(slot);
  return host_.restore_state(slot, state);
}

void DeviceStepper::step(std::span<Slot> slots, EventPublisher& events) {
  Slot* lone = DevicePolicy::lone_decoder(slots);
  if (lane().slot() != nullptr && lane().slot() != lone) {
    settle(events);
    lone = DevicePolicy::lone_decoder(slots);
    if (!is_any_active(slots)) return;
  }
  const HostReason reason = policy_.why_host(lone);
  if (reason != HostReason::kNone) {
    step_on_host(slots, reason, events);
    return;
  }
  if (lane().slot() == nullptr && !launch(*lone)) {  // no cell is free: llama_decode reports it
    step_on_host(slots, HostReason::kNone, events);
    return;
  }
  const Lane::Progress news = loop_.wait_for_news(true);
  if (!lane().is_news(news)) return;  // the decode thread's loop is wanted
  take(news, events);
  // At once, so that the GPU does not wait while the decode thread looks for commands.
  if (lane().is_paused()) {
    go_on([this] { loop_.resume(); });
  } else if (lane().slot() == nullptr && lone->active() &&
             policy_.why_host(lone) == HostReason::kNone) {
    static_cast<void>(launch(*lone));  // where it fails the next step says so
  }
  host_.clean(slots);
}

bool DeviceStepper::launch(Slot& slot) {
  try {
    const bool is_launched = loop_.launch(slot, host_.sampler(slot));
    counters_.n_window_graphs.set(loop_.n_graphs());
    return is_launched;
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    // Mostly for want of device memory. Nothing runs; the host can do what the GPU cannot.
    policy_.ground(*slot.spec);
    return false;
  }
}

template <class Start>
void DeviceStepper::go_on(Start start) {
  const RequestSpec& spec = *lane().slot()->spec;
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
  while (lane().slot() != nullptr) {
    if (lane().is_paused()) return loop_.land();
    lane().ask_to_leave();
    take(loop_.wait_for_news(false), events);
  }
}

void DeviceStepper::take(const Lane::Progress& progress, EventPublisher& events) {
  Lane& lane = loop_.lane();
  Slot& slot = *lane.slot();
  if (loop_.is_stepwise() && !admit(progress, events)) return;
  const bool may_go_on = progress.exit == LoopExit::kPause ||
                         (loop_.is_stepwise() && progress.exit == LoopExit::kNone);
  const bool has_left =
      may_go_on || progress.exit == LoopExit::kSteps || progress.exit == LoopExit::kStopped;
  while (lane.n_taken() < progress.n_tokens) {
    const auto [step, token] = lane.take();
    host_.sampler(slot).accept(token);
    // Of a grammar that waits: the tokens that can end its wait are among the pause tokens.
    const bool is_free = !loop_.is_stepwise() && slot.spec->mask != nullptr;
    if (is_free) slot.spec->mask->accept(token);
    const bool is_triggered = is_free && !slot.spec->mask->waits();
    const FinishReason reason = judge_token(slot, token, *model_);
    if (lane.n_taken() == progress.n_tokens && has_left) {
      // A grammar that has been triggered has a step a launch from here on.
      const bool goes_on =
          may_go_on && reason == FinishReason::kNone && lane.has_steps_left() && !is_triggered;
      // Before the last event, which may end the request: the KV must know its tokens by then.
      goes_on ? lane.pause() : loop_.land();
    }
    counters_.n_tokens_device.add(1);
    const float logprob = lane.publish_logprobs(step, slot, events);
    publish_token(slot, token, logprob, reason, counters_, events);
  }
  if (progress.exit == LoopExit::kNonFinite) {
    forget(slot);
    host_.taint();
    events.finished(slot, FinishReason::kNonFinite);
  } else if (progress.exit == LoopExit::kNone && loop_.runs_ahead()) {
    go_on([this] { loop_.launch_ahead(); });
  }
}

void DeviceStepper::step_on_host(std::span<Slot> slots, HostReason reason, EventPublisher& events) {
  // The GPU's tokens come first, and they may be the last ones: never two at work on one slot.
  if (lane().slot() != nullptr) {
    settle(events);
    if (!is_any_active(slots)) return;
  }
  policy_.count(slots, reason);
  loop_.give_back([this](const Slot& slot) -> Sampler& { return host_.sampler(slot); });
  host_.step(slots, events);
}

}  // namespace unpaced
