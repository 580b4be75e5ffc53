// The decode thread's loop with a scripted stepper: cancel in every state, a full token ring,
// errors.
#include <stdexcept>

#include "check.h"
#include "decode/decode_thread.h"
#include "front_end.h"
#include "scripted_stepper.h"

namespace decode_thread_trouble_test {
namespace {

using namespace std::chrono_literals;
using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::prompt_of;
using unpaced::test::Script;
using unpaced::test::scripted_tokens;

// --- cancel, in every state ----------------------------------------------------------------

TEST(cancel_while_waiting_for_a_slot) {
  Script script;
  FrontEnd front({.n_slots = 1});
  front.start(factory_of(script));
  script.gate.allow(3);
  const RequestId running = front.submit(prompt_of(4), 50);
  script.gate.wait_until_held();
  const RequestId waiting = front.submit(prompt_of(4), 50);
  const RequestId next = front.submit(prompt_of(4), 50);
  CHECK(front.thread().cancel(waiting));
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.reason(waiting) == FinishReason::kCancelled);
  CHECK_EQ(front.events(waiting).size(), 1U);  // it never had a slot
  CHECK(front.reason(running) == FinishReason::kTokenLimit);
  CHECK(front.reason(next) == FinishReason::kTokenLimit);
  // It did not wait for the running request to end.
  CHECK(front.order_of(EventKind::kFinished).front() == waiting);
}

TEST(cancel_during_prefill_stops_before_the_next_chunk) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  script.gate.allow(2);
  const RequestId id = front.submit(prompt_of(200), 5);
  script.gate.wait_until_held();
  CHECK(front.thread().cancel(id));
  script.gate.allow(Gate::kOpen);  // the step at the gate is under way: its chunk is the last
  CHECK(front.run_until_finished(id));
  CHECK(front.reason(id) == FinishReason::kCancelled);
  CHECK_EQ(front.count(id, EventKind::kPrefill), 3);
  CHECK_EQ(front.count(id, EventKind::kToken), 0);
  CHECK_EQ(front.events(id).back().finished.n_cells, 24);  // what is computed can be reused
}

TEST(cancel_during_decode_stops_before_the_next_token) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  script.gate.allow(10);  // one chunk with the first token, then nine tokens
  const RequestId id = front.submit(prompt_of(8), -1);
  script.gate.wait_until_held();
  CHECK(front.thread().cancel(id));
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
  CHECK(front.reason(id) == FinishReason::kCancelled);
  CHECK_EQ(front.count(id, EventKind::kToken), 11);
}

TEST(cancel_before_the_thread_has_seen_the_request) {
  Script script;
  script.n_ctx = 1 << 18;  // no end but the cancel
  FrontEnd front({.n_slots = 1});
  front.start(factory_of(script));
  for (int i = 0; i < 500 / kSanitizerSlowdown; ++i) {
    const RequestId id = front.submit(prompt_of(4), -1);
    CHECK(front.thread().cancel(id));
    CHECK(front.run_until_finished(id));
    CHECK(front.reason(id) == FinishReason::kCancelled);
  }
}

TEST(cancel_of_unknown_finished_or_cancelled_requests_is_ignored) {
  Script script;
  script.n_ctx = 1 << 18;  // no end but the cancel
  FrontEnd front({});
  front.start(factory_of(script));
  CHECK(front.thread().cancel(12345));
  const RequestId first = front.submit(prompt_of(4), 3);
  CHECK(front.run_until_finished(first));
  CHECK(front.thread().cancel(first));
  const RequestId second = front.submit(prompt_of(4), -1);
  CHECK(front.thread().cancel(second));
  CHECK(front.thread().cancel(second));
  CHECK(front.run_until_finished(second));
  const RequestId third = front.submit(prompt_of(4), 3);
  CHECK(front.run_until_finished(third));
  CHECK(front.reason(third) == FinishReason::kTokenLimit);
  CHECK_EQ(front.thread().counters().n_requests_cancelled.get(), 1U);
}

// --- back-pressure -------------------------------------------------------------------------

TEST(full_ring_holds_the_thread_and_loses_nothing) {
  Script script;
  FrontEnd front({.n_events = 8});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(8), 200);
  while (front.thread().counters().n_ring_full.get() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  CHECK_EQ(front.thread().n_events_approx(), 8U);
  CHECK_EQ(front.thread().counters().n_ring_full.get(), 1U);
  CHECK_EQ(front.thread().n_events_most(), 0U);  // the front end sees it when it looks
  CHECK(front.run_until_finished(id));
  CHECK_EQ(front.thread().n_events_most(), front.thread().n_events_max());
  CHECK(front.thread().cpu_us() > 0);
  CHECK(front.tokens(id) == scripted_tokens(id, 200));
  front.thread().stop();
  CHECK_EQ(front.thread().cpu_us(), 0);
}

TEST(cancel_works_with_a_full_ring) {
  Script script;
  FrontEnd front({.n_events = 4});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(8), -1);
  while (front.thread().counters().n_ring_full.get() == 0) std::this_thread::yield();
  CHECK(front.thread().cancel(id));
  CHECK(front.run_until_finished(id));
  CHECK(front.reason(id) == FinishReason::kCancelled);
}

TEST(stop_works_with_a_full_ring) {
  for (int i = 0; i < 50 / kSanitizerSlowdown; ++i) {
    Script script;
    FrontEnd front({.n_events = 4});
    front.start(factory_of(script));
    (void)front.submit(prompt_of(8), -1);
    (void)front.submit(prompt_of(8), -1);
    while (front.thread().counters().n_ring_full.get() == 0) std::this_thread::yield();
    front.thread().stop();
    CHECK(front.thread().state() == EngineState::kStopped);
  }
}

// --- errors --------------------------------------------------------------------------------

TEST(exception_in_the_factory_fails_the_start) {
  FrontEnd front({});
  front.start(
      []() -> std::unique_ptr<unpaced::Stepper> { throw std::runtime_error("no such model"); });
  CHECK(front.thread().state() == EngineState::kFailed);
  CHECK_EQ(front.thread().error(), std::string("no such model"));
  CHECK_EQ(front.submit(prompt_of(3), 1), 0U);
}

TEST(exception_at_the_start_of_a_request_ends_that_request_alone) {
  Script script;
  script.on_begin = [](const Slot& slot) {
    if (slot.spec->prompt.size() == 13) throw std::length_error("unlucky");
  };
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId good = front.submit(prompt_of(4), 5);
  const RequestId bad = front.submit(prompt_of(13), 5);
  const RequestId next = front.submit(prompt_of(4), 5);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.reason(bad) == FinishReason::kException);
  CHECK_EQ(front.thread().error(), std::string("unlucky"));
  CHECK(front.reason(good) == FinishReason::kTokenLimit);
  CHECK(front.reason(next) == FinishReason::kTokenLimit);
  CHECK_EQ(front.thread().counters().n_requests_failed.get(), 1U);
}

TEST(exception_in_a_step_becomes_an_error_event_and_the_thread_lives_on) {
  Script script;
  script.before_token = [](const Slot& slot) {
    if (slot.spec->max_tokens == 77 && slot.n_decoded == 3) throw std::runtime_error("bad step");
    if (slot.spec->max_tokens == 78 && slot.n_decoded == 3) throw 42;  // not an std::exception
  };
  FrontEnd front({.n_slots = 1});
  front.start(factory_of(script));
  const RequestId first = front.submit(prompt_of(4), 77);
  CHECK(front.run_until_finished(first));
  CHECK(front.reason(first) == FinishReason::kException);
  CHECK_EQ(front.count(first, EventKind::kToken), 3);
  CHECK_EQ(front.thread().error(), std::string("bad step"));
  const RequestId second = front.submit(prompt_of(4), 78);
  CHECK(front.run_until_finished(second));
  CHECK(front.reason(second) == FinishReason::kException);
  CHECK_EQ(script.n_forgotten.load(std::memory_order_relaxed), 2);
  const RequestId third = front.submit(prompt_of(4), 5);
  CHECK(front.run_until_finished(third));
  CHECK_EQ(front.events(third).front().prompt.n_cached, 0);  // the KV was in doubt
  CHECK(front.reason(third) == FinishReason::kTokenLimit);
  CHECK(front.thread().state() == EngineState::kReady);
}

}  // namespace
}  // namespace decode_thread_trouble_test
