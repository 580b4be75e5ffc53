// The decode thread's loop with a scripted stepper: life, slots and their order, health, affinity.
#include "decode/decode_thread.h"

#include "base/cpu_affinity.h"
#include "check.h"
#include "front_end.h"
#include "scripted_stepper.h"

namespace decode_thread_test {
namespace {

using namespace std::chrono_literals;
using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::TokenId;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::prompt_of;
using unpaced::test::Script;
using unpaced::test::scripted_tokens;
using unpaced::test::ScriptedStepper;

// --- life ----------------------------------------------------------------------------------

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

// What Engine relies on for the vocabulary. ThreadSanitizer judges.
TEST(what_the_factory_wrote_can_be_read_once_the_state_is_ready) {
  Script script;
  std::string vocabulary;
  FrontEnd front({});
  front.thread().start([&]() -> std::unique_ptr<unpaced::Stepper> {
    vocabulary = "written on the decode thread";
    return std::make_unique<ScriptedStepper>(script);
  });
  while (front.thread().state() != EngineState::kReady) std::this_thread::yield();
  CHECK_EQ(vocabulary, std::string("written on the decode thread"));
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

// --- slots ---------------------------------------------------------------------------------

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

// --- health and placement ------------------------------------------------------------------

TEST(heartbeat_ages_in_a_stuck_step_and_not_in_sleep) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  // It sleeps as soon as it has begun, however late that is on a busy machine.
  while (front.thread().heartbeat_age_us() > 0) std::this_thread::yield();
  std::this_thread::sleep_for(30ms);
  CHECK_EQ(front.thread().heartbeat_age_us(), 0);
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
}  // namespace decode_thread_test
