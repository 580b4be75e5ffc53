// The end of an engine: a stepper that is lost, a thread that hangs, and a wait that a command
// ends.
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include "check.h"
#include "decode/decode_thread.h"
#include "decode/engine_lost.h"
#include "decode/event_publisher.h"
#include "front_end.h"
#include "scripted_stepper.h"

namespace decode_thread_lost_test {
namespace {

using namespace std::chrono_literals;
using unpaced::EngineLost;
using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::prompt_of;
using unpaced::test::Script;
using unpaced::test::ScriptedStepper;

// --- a stepper that is lost ----------------------------------------------------------------------

TEST(a_lost_stepper_ends_everything_and_is_not_touched_again) {
  Script script;
  int n_forgotten = 0;
  script.before_token = [&](const Slot& slot) {
    n_forgotten = script.n_forgotten.load(std::memory_order_relaxed);
    if (slot.n_decoded == 3) throw EngineLost("no sign of life");
  };
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId running = front.submit(prompt_of(4), 50);
  script.gate.wait_until_held();
  const RequestId beside = front.submit(prompt_of(4, 5000), 50);
  const RequestId waiting = front.submit(prompt_of(4, 9000), 50);
  SlotAction action;
  action.kind = SlotActionKind::kErase;
  action.slot = 0;
  CHECK(front.submit(action));
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  for (const RequestId id : {running, beside, waiting}) {
    CHECK(front.reason(id) == FinishReason::kException);
  }
  CHECK_EQ(front.count(running, EventKind::kToken), 3);
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(front.thread().error(), std::string("no sign of life"));
  CHECK_EQ(front.submit(prompt_of(4), 5), 0U);
  CHECK(front.thread().stop_within(10s));
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(script.n_forgotten.load(std::memory_order_relaxed), n_forgotten);
  CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 0);
}

TEST(a_stepper_may_be_lost_as_a_request_begins) {
  Script script;
  script.on_begin = [](const Slot&) { throw EngineLost("gone"); };
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId first = front.submit(prompt_of(4), 5);
  CHECK(front.run_until_finished(first));
  CHECK(front.reason(first) == FinishReason::kException);
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(script.n_forgotten.load(std::memory_order_relaxed), 0);
}

TEST(a_stepper_may_be_lost_in_idle_time) {
  Script script;
  int n_idle = 0;
  script.on_idle = [&]() -> bool {
    if (++n_idle == 3) throw EngineLost("gone while nobody asked");
    return true;
  };
  FrontEnd front({});
  front.start(factory_of(script));
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (front.thread().state() != EngineState::kFailed &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(n_idle, 3);
  CHECK_EQ(front.submit(prompt_of(4), 5), 0U);
  CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 0);
}

// An error costs the requests at hand, and its cells are given up; that may show the loss.
class LostWhileForgetting final : public unpaced::Stepper {
 public:
  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return 512; }
  std::int32_t begin(Slot& /*slot*/) override { return 0; }
  void step(std::span<Slot> /*slots*/, unpaced::EventPublisher& /*events*/) override {
    throw std::runtime_error("bad step");
  }
  void forget(Slot& /*slot*/) override { throw EngineLost("cannot even forget"); }
};

TEST(a_stepper_may_be_lost_while_it_clears_up) {
  FrontEnd front({.n_slots = 2});
  front.start([] { return std::make_unique<LostWhileForgetting>(); });
  const RequestId first = front.submit(prompt_of(4), 5);
  const RequestId second = front.submit(prompt_of(4), 5);
  CHECK(front.run_until([&] { return front.n_on_loan() == 0; }));
  CHECK(second == 0 || front.reason(second) == FinishReason::kException);
  CHECK(front.reason(first) == FinishReason::kException);
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(front.thread().error(), std::string("cannot even forget"));
}

// --- a thread that hangs -------------------------------------------------------------------------

TEST(a_hung_thread_is_not_waited_for) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(4), 50);
  script.gate.wait_until_held();
  CHECK(!front.thread().stop_within(50ms));
  CHECK(front.thread().state() == EngineState::kReady);
  CHECK(front.thread().abandon("it hangs"));  // it may still run
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(front.thread().error(), std::string("it hangs"));
  CHECK_EQ(front.submit(prompt_of(4), 5), 0U);
  CHECK_EQ(front.thread().progress(), -1);
  CHECK(!front.finished(id));
  // Should it come back after all: it frees nothing and ends.
  script.gate.allow(Gate::kOpen);
  CHECK(front.thread().stop_within(10s));
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 0);
  CHECK(front.run_until_all_finished());
}

TEST(a_thread_that_has_ended_can_be_abandoned) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  CHECK(front.thread().stop_within(10s));
  CHECK(front.thread().state() == EngineState::kStopped);
  CHECK(!front.thread().abandon("why not"));
  CHECK(front.thread().stop_within(0s));
}

// --- a load that is lost -------------------------------------------------------------------------

TEST(a_device_that_is_lost_while_the_model_loads_is_told_from_a_bad_model) {
  for (const bool lost : {false, true}) {
    FrontEnd front({});
    front.start([lost]() -> std::unique_ptr<unpaced::Stepper> {
      if (lost) throw EngineLost("no sign of life");
      throw std::runtime_error("a bad model");
    });
    CHECK(front.run_until([&] { return front.thread().state() == EngineState::kFailed; }));
    CHECK_EQ(front.thread().error(), std::string(lost ? "no sign of life" : "a bad model"));
    CHECK_EQ(front.thread().is_lost(), lost);
    CHECK(front.thread().stop_within(10s));
    CHECK(front.thread().state() == EngineState::kFailed);
  }
}

// Nothing wakes a front end for it.
template <class Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 10'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

TEST(the_age_of_a_test_while_the_model_loads) {
  std::promise<void> test_ends;
  std::promise<void> load_ends;
  Script script;
  FrontEnd front({});
  front.thread().start([&]() -> std::unique_ptr<unpaced::Stepper> {
    unpaced::Counters& counters = front.thread().counters();
    counters.gpu_test_us.set(static_cast<std::uint64_t>(unpaced::steady_us()));
    test_ends.get_future().wait();
    counters.gpu_test_us.set(0);
    load_ends.get_future().wait();
    return std::make_unique<ScriptedStepper>(script);
  });
  CHECK(comes_true([&] { return front.thread().gpu_test_age_us() > 20'000; }));
  test_ends.set_value();
  CHECK(comes_true([&] { return front.thread().gpu_test_age_us() == 0; }));
  CHECK(front.thread().state() == EngineState::kLoading);
  load_ends.set_value();
  CHECK(comes_true([&] { return front.thread().state() == EngineState::kReady; }));
}

TEST(progress_is_seen_step_by_step) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(4), 50);
  script.gate.wait_until_held();
  const std::int64_t before = front.thread().progress();
  CHECK(before >= 0);
  std::this_thread::sleep_for(2ms);
  CHECK_EQ(front.thread().progress(), before);
  script.gate.allow(1);
  script.gate.wait_until_held();
  CHECK(front.thread().progress() > before);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

// --- a step that only waits ----------------------------------------------------------------------

// Decodes as ScriptedStepper does, but waits for a device that never answers before each token
// after the first, until somebody wants the loop.
class WaitingStepper final : public unpaced::Stepper {
 public:
  explicit WaitingStepper(Script& script) : stepper_(script) {}

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return stepper_.n_ctx(); }
  void attach(unpaced::Interruption& interruption) override { interruption_ = &interruption; }
  std::int32_t begin(Slot& slot) override { return stepper_.begin(slot); }
  void forget(Slot& slot) override { stepper_.forget(slot); }
  void step(std::span<Slot> slots, unpaced::EventPublisher& events) override {
    const bool waits = std::any_of(slots.begin(), slots.end(), [](const Slot& slot) {
      return slot.active() && slot.n_decoded > 0;
    });
    while (waits && !interruption_->is_pending()) {
      interruption_->nap_until(std::chrono::steady_clock::now() + 1h);
    }
    if (!waits) stepper_.step(slots, events);
  }

 private:
  ScriptedStepper stepper_;
  unpaced::Interruption* interruption_ = nullptr;
};

TEST(a_command_ends_the_waiting) {
  Script script;
  FrontEnd front({.n_slots = 2});
  front.start([&script] { return std::make_unique<WaitingStepper>(script); });
  const RequestId first = front.submit(prompt_of(4), 50);
  CHECK(front.run_until([&] { return front.count(first, EventKind::kToken) == 1; }));
  for (int i = 0; i < 100; ++i) {
    if (i % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(i * 20));
    const RequestId second = front.submit(prompt_of(4, 5000), 50);
    CHECK(front.run_until([&] { return front.count(second, EventKind::kStarted) == 1; }));
    CHECK(front.thread().cancel(second));
    CHECK(front.run_until_finished(second));
  }
  CHECK(front.thread().stop_within(10s));  // so does a stop
  CHECK(front.run_until_all_finished());
  CHECK(front.reason(first) == FinishReason::kStopped);
}

}  // namespace
}  // namespace decode_thread_lost_test
