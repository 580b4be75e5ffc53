// The decode thread's loop with a scripted stepper: life, cancel in every state, back-pressure,
// errors, slots, order, affinity.
#include "decode_thread.h"

#include <sched.h>

#include <algorithm>
#include <stdexcept>

#include "check.h"
#include "cpu_affinity.h"
#include "front_end.h"
#include "scripted_stepper.h"

namespace {

using namespace std::chrono_literals;
using unpaced::DecodeThread;
using unpaced::DecodeThreadOptions;
using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::TokenEvent;
using unpaced::TokenId;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::Script;
using unpaced::test::scripted_token;
using unpaced::test::ScriptedStepper;

DecodeThread::StepperFactory factory_of(Script& script) {
  return [&script] { return std::make_unique<ScriptedStepper>(script); };
}

// Prompts of different bases share no prefix.
std::vector<TokenId> prompt_of(std::int32_t n, TokenId base = 1000) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) prompt[static_cast<std::size_t>(i)] = base + i;
  return prompt;
}

std::vector<TokenId> scripted_tokens(RequestId id, std::int32_t n) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < n; ++i) tokens.push_back(scripted_token(id, i));
  return tokens;
}

// --- life --------------------------------------------------------------------------------------

TEST(request_runs_from_started_to_its_token_limit) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  CHECK(front.thread().state() == EngineState::kReady);
  CHECK_EQ(front.thread().n_ctx(), script.n_ctx);
  const RequestId id = front.submit(prompt_of(20), 5);
  CHECK(front.run_until_finished(id));
  const auto& events = front.events(id);
  CHECK_EQ(events.size(), 1U + 3U + 5U + 1U);  // started, chunks of 8 8 4, tokens, finished
  CHECK(events[0].kind == EventKind::kStarted);
  CHECK_EQ(events[0].prompt.n_prompt, 20);
  CHECK_EQ(events[3].prompt.n_processed, 20);
  CHECK_EQ(events[4].token.n_decoded, 1);
  CHECK(front.tokens(id) == scripted_tokens(id, 5));
  CHECK(front.reason(id) == FinishReason::kTokenLimit);
  CHECK_EQ(events.back().finished.n_decoded, 5);
  CHECK_EQ(events.back().finished.n_cells, 24);  // the last token is not in the KV
  CHECK_EQ(front.thread().counters().n_requests_finished.get(), 1U);
  CHECK_EQ(front.n_on_loan(), 0U);
}

TEST(context_limit_ends_a_request_without_a_token_limit) {
  Script script;
  script.n_ctx = 32;
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(20), -1);
  CHECK(front.run_until_finished(id));
  CHECK(front.reason(id) == FinishReason::kContextLimit);
  CHECK(front.events(id).back().finished.n_cells < 32);
}

TEST(submit_is_refused_unless_ready) {
  Script script;
  FrontEnd front({});
  CHECK_EQ(front.submit(prompt_of(3), 1), 0U);  // never started
  front.start(factory_of(script));
  CHECK(front.submit(prompt_of(3), 1) != 0);
  CHECK(front.run_until_all_finished());
  front.thread().stop();
  CHECK(front.thread().state() == EngineState::kStopped);
  CHECK_EQ(front.submit(prompt_of(3), 1), 0U);
}

TEST(stop_is_idempotent_and_needs_no_start) {
  Script script;
  {
    FrontEnd never_started({});
    never_started.thread().stop();
    never_started.thread().stop();
  }
  FrontEnd front({});
  front.start(factory_of(script));
  front.thread().stop();
  front.thread().stop();
  CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 1);
}

TEST(stop_wakes_a_sleeping_thread) {
  for (int i = 0; i < 100 / kSanitizerSlowdown; ++i) {
    Script script;
    FrontEnd front({});
    front.start(factory_of(script));
    if (i % 2 == 0) std::this_thread::yield();
    front.thread().stop();  // the watchdog sees a hang
  }
}

TEST(stop_ends_running_and_waiting_requests) {
  Script script;
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  script.gate.allow(5);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(front.submit(prompt_of(4, 1000 * (i + 1)), -1));
  script.gate.wait_until_held();
  std::thread opener([&] {
    // acquire, partner: the release store in stop().
    while (!front.thread().stop_flag().load(std::memory_order_acquire)) std::this_thread::yield();
    script.gate.allow(Gate::kOpen);
  });
  front.thread().stop();
  opener.join();
  front.drain();
  for (const RequestId id : ids) CHECK(front.reason(id) == FinishReason::kStopped);
  CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 1);
}

TEST(stop_while_loading_is_seen_by_the_factory) {
  Script script;
  FrontEnd front({});
  std::atomic<bool> loading{false};
  front.thread().start([&]() -> std::unique_ptr<unpaced::Stepper> {
    // release and acquire, partners of each other.
    loading.store(true, std::memory_order_release);
    while (!front.thread().stop_flag().load(std::memory_order_acquire)) std::this_thread::yield();
    throw std::runtime_error("load was given up");
  });
  while (!loading.load(std::memory_order_acquire)) std::this_thread::yield();
  CHECK(front.thread().state() == EngineState::kLoading);
  front.thread().stop();
  CHECK(front.thread().state() == EngineState::kFailed);
}

// --- cancel, in every state ------------------------------------------------------------------

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

// --- slots -----------------------------------------------------------------------------------

TEST(waiting_requests_are_seated_first_come_first_served) {
  Script script;
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  script.gate.allow(0);
  std::vector<RequestId> submitted;
  for (int i = 0; i < 20; ++i) submitted.push_back(front.submit(prompt_of(4), 1 + i % 3));
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.order_of(EventKind::kStarted) == submitted);
}

TEST(slots_are_reused_and_keep_common_prefixes) {
  Script script;
  FrontEnd front({.n_slots = 2});
  front.start(factory_of(script));
  const RequestId a = front.submit(prompt_of(30, 1000), 4);
  CHECK(front.run_until_finished(a));
  const RequestId b = front.submit(prompt_of(30, 5000), 4);
  CHECK(front.run_until_finished(b));
  const std::uint16_t slot_a = front.events(a).front().slot;
  CHECK(front.events(b).front().slot != slot_a);
  // The longer prefix wins over the longer idle slot, and the other way round.
  for (const TokenId base : {1000, 5000, 1000, 1000, 5000}) {
    const RequestId again = front.submit(prompt_of(30, base), 4);
    CHECK(front.run_until_finished(again));
    CHECK_EQ(front.events(again).front().slot == slot_a, base == 1000);
    CHECK_EQ(front.events(again).front().prompt.n_cached, 29);  // the last is always computed
    CHECK_EQ(front.count(again, EventKind::kPrefill), 1);
  }
  // Nothing in common with either: the slot that has been idle longer.
  const RequestId other = front.submit(prompt_of(30, 9000), 4);
  CHECK(front.run_until_finished(other));
  CHECK_EQ(front.events(other).front().slot, slot_a);
}

TEST(all_slots_advance_together) {
  Script script;
  FrontEnd front({.n_slots = 4});
  front.start(factory_of(script));
  script.gate.allow(0);
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(front.submit(prompt_of(4, 1000 * (i + 1)), 25));
  // The first may be held alone at the gate; after that step all four are in.
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  CHECK(front.thread().counters().n_steps.get() <= 26U);
  for (const RequestId id : ids) CHECK(front.tokens(id) == scripted_tokens(id, 25));
}

TEST(more_requests_than_places_are_refused_and_none_is_lost) {
  Script script;
  FrontEnd front({.n_slots = 1, .n_waiting_max = 4});
  front.start(factory_of(script));
  script.gate.allow(0);
  int n_taken = 0;
  int n_refused = 0;
  std::vector<RequestId> ids;
  for (int i = 0; i < 100; ++i) {
    const RequestId id = front.submit(prompt_of(4), 2);
    (id != 0 ? n_taken : n_refused) += 1;
    if (id != 0) ids.push_back(id);
  }
  CHECK(n_refused > 0);
  CHECK(n_taken >= 5);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
  for (const RequestId id : ids) CHECK(front.finished(id));
}

// --- back-pressure ---------------------------------------------------------------------------

TEST(full_ring_holds_the_thread_and_loses_nothing) {
  Script script;
  FrontEnd front({.n_events = 8});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(8), 200);
  while (front.thread().counters().n_ring_full.get() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  CHECK_EQ(front.thread().n_events_approx(), 8U);
  CHECK_EQ(front.thread().counters().n_ring_full.get(), 1U);
  CHECK(front.run_until_finished(id));
  CHECK(front.tokens(id) == scripted_tokens(id, 200));
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

TEST(reader_is_woken_at_most_once_a_step) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(8), 400);
  CHECK(front.run_until_finished(id));
  // One more for the change of state, one for the end of work.
  CHECK(front.thread().reader_wakeup().n_writes() <= front.thread().counters().n_steps.get() + 2);
  CHECK(front.thread().reader_wakeup().n_writes() <= front.n_parks());
}

// --- errors ----------------------------------------------------------------------------------

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

// --- health and placement --------------------------------------------------------------------

TEST(heartbeat_ages_in_a_stuck_step_and_not_in_sleep) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  std::this_thread::sleep_for(30ms);
  CHECK(front.thread().heartbeat_age_us() < 10'000);
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(4), 2);
  script.gate.wait_until_held();
  std::this_thread::sleep_for(30ms);
  CHECK(front.thread().heartbeat_age_us() >= 25'000);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

TEST(sleeping_thread_makes_no_steps) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  CHECK(front.run_until_finished(front.submit(prompt_of(4), 3)));
  const std::uint64_t n_steps = front.thread().counters().n_steps.get();
  std::this_thread::sleep_for(20ms);
  CHECK_EQ(front.thread().counters().n_steps.get(), n_steps);
}

TEST(thread_runs_on_the_cores_it_is_given) {
  const std::vector<int> cores = unpaced::allowed_cores();
  Script script;
  std::vector<int> seen;  // written on the decode thread, read after a finished event
  script.on_begin = [&seen](const Slot&) { seen = unpaced::allowed_cores(); };
  FrontEnd front({.cores = {cores.back()}});
  front.start(factory_of(script));
  CHECK(front.run_until_finished(front.submit(prompt_of(4), 3)));
  CHECK(seen == std::vector<int>{cores.back()});
}

TEST(front_end_and_decode_thread_can_share_a_single_core) {
  const std::vector<int> cores = unpaced::allowed_cores();
  REQUIRE(unpaced::pin_calling_thread({cores.data(), 1}));
  {
    Script script;
    FrontEnd front({.n_slots = 2, .n_events = 16, .cores = {cores.front()}});
    front.start(factory_of(script));
    for (int i = 0; i < 20; ++i) CHECK(front.submit(prompt_of(20), 50) != 0);
    CHECK(front.run_until_all_finished());
  }
  REQUIRE(unpaced::pin_calling_thread(cores));
}

}  // namespace

CHECK_MAIN()
