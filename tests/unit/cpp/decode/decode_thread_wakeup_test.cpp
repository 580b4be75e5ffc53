// When the decode thread wakes its reader: at most once a step, and less often for tokens that come
// faster than the wake interval, but at once for what cannot wait.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/cpu_affinity.h"
#include "check.h"
#include "decode/decode_thread.h"
#include "front_end.h"
#include "scripted_stepper.h"

namespace decode_thread_wakeup_test {
namespace {

using namespace std::chrono_literals;
using unpaced::DecodeThreadOptions;
using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::Gate;
using unpaced::test::prompt_of;
using unpaced::test::Script;
using unpaced::test::scripted_tokens;

constexpr std::int64_t kLongUs = 3'600'000'000;  // an hour: time alone never ends the sharing

TEST(reader_is_woken_at_most_once_a_step) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(8), 400);
  CHECK(front.run_until_finished(id));
  // One more for the change of state, one for the start of the request, one for the end of work.
  CHECK(front.thread().reader_wakeup().n_writes() <= front.thread().counters().n_steps.get() + 3);
  CHECK(front.thread().reader_wakeup().n_writes() <= front.n_parks());
}

TEST(event_reaches_the_reader_before_the_next_step) {
  Script script;
  FrontEnd front({});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(4), 20);
  for (int n_tokens = 1; n_tokens < 20; ++n_tokens) {
    script.gate.allow(1);
    CHECK(front.run_until([&] { return front.count(id, EventKind::kToken) >= n_tokens; }));
    script.gate.wait_until_held();  // the thread is in its next step, asleep
  }
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

// Without an event.
bool comes_true(const std::function<bool()>& what) {
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!what() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  return what();
}

// Before the thread sleeps, and no longer than there is something to do.
TEST(idle_time_is_used_piece_by_piece) {
  Script script;
  std::atomic<int> n_idle{0};
  std::atomic<int> n_wanted{3};
  script.on_idle = [&] {
    ++n_idle;
    return n_wanted.fetch_sub(1) > 0;
  };
  FrontEnd front({});
  front.start(factory_of(script));
  CHECK(comes_true([&] { return n_wanted < 0; }));
  const int n_before = n_idle;
  CHECK_EQ(n_before, 4);
  n_wanted = 1;
  const RequestId id = front.submit(prompt_of(4), 20);
  CHECK(front.run_until_finished(id));
  CHECK(front.tokens(id) == scripted_tokens(id, 20));
  CHECK(comes_true([&] { return n_wanted < 0; }));
  CHECK(n_idle > n_before);
}

// Not between requests that follow one another, and not where nothing is wanted.
TEST(quiet_time_is_used_after_a_while) {
  using Clock = std::chrono::steady_clock;
  Script script;
  std::atomic<int> n_wanted{0};
  std::atomic<std::int64_t> used_at{0};
  const auto now = [] { return Clock::now().time_since_epoch().count(); };
  script.wants_quiet = [&] { return n_wanted > 0; };
  script.on_quiet = [&] {
    if (used_at == 0) used_at = now();
    return n_wanted.fetch_sub(1) > 0;
  };
  FrontEnd front({});
  front.start(factory_of(script));
  for (int i = 0; i < 20; ++i) {
    n_wanted = 3;
    const RequestId id = front.submit(prompt_of(4), 20);
    CHECK(front.run_until_finished(id));
    CHECK(front.tokens(id) == scripted_tokens(id, 20));
  }
  const std::int64_t ended = now();
  CHECK(comes_true([&] { return n_wanted == 0; }));
  // Twenty requests may have had a pause between them on a busy machine.
  const auto rest = std::chrono::nanoseconds(used_at.load() - ended);
  CHECK(rest < std::chrono::nanoseconds::zero() || rest > 25ms);
}

// A thread with a core of its own, that is, with one that it is pinned to.
void start_pinned(FrontEnd& front, Script& script) {
  front.start(factory_of(script));
  CHECK(front.run_until([&] { return front.thread().state() == EngineState::kReady; }));
}

DecodeThreadOptions pinned() { return {.cores = {unpaced::allowed_cores().back()}}; }

// After the thread has been awake since `beat`, which is a value of its heartbeat.
void wait_until_asleep_again(FrontEnd& front, std::uint64_t beat) {
  const auto deadline = std::chrono::steady_clock::now() + FrontEnd::kPatience;
  while (front.thread().counters().last_step_us.get() == beat ||
         front.thread().heartbeat_age_us() > 0) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(200us);
  }
}

TEST(expecting_what_does_not_come_wakes_nobody_else) {
  Script script;
  FrontEnd front(pinned());
  start_pinned(front, script);
  wait_until_asleep_again(front, 0);
  front.drain();
  front.thread().reader_wakeup().acknowledge();
  front.thread().reader_wakeup().prepare_park();
  const std::uint64_t n_writes = front.thread().reader_wakeup().n_writes();
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t beat = front.thread().counters().last_step_us.get();
    front.thread().expect();
    wait_until_asleep_again(front, beat);
  }
  CHECK_EQ(front.thread().reader_wakeup().n_writes(), n_writes);
  front.thread().reader_wakeup().cancel_park();
  const RequestId id = front.submit(prompt_of(4), 10);
  CHECK(front.run_until_finished(id));
  CHECK(front.tokens(id) == scripted_tokens(id, 10));
}

TEST(expected_requests_are_served) {
  Script script;
  FrontEnd front(pinned());
  start_pinned(front, script);
  for (int i = 0; i < 200; ++i) {
    front.thread().expect();
    if (i % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(i * 10));
    if (i % 3 == 2) std::this_thread::yield();
    const RequestId id = front.submit(prompt_of(4), 3);
    CHECK(front.run_until_finished(id));
    CHECK(front.tokens(id) == scripted_tokens(id, 3));
  }
  front.thread().expect();
  front.thread().stop();
  CHECK(front.thread().state() == EngineState::kStopped);
  front.thread().expect();  // of no effect any more
}

// The front end has work of its own to do while a prompt is computed.
TEST(start_is_told_before_the_prompt_is_computed) {
  Script script;
  FrontEnd front({.wake_interval_us = kLongUs});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(80), 1);
  script.gate.wait_until_held();
  CHECK(front.run_until([&] { return front.count(id, EventKind::kStarted) == 1; }));
  CHECK_EQ(front.count(id, EventKind::kPrefill), 0);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

TEST(fast_tokens_share_a_wake_up) {
  Script script;
  FrontEnd front({.wake_interval_us = kLongUs});
  front.start(factory_of(script));
  const std::uint64_t n_writes_before = front.thread().reader_wakeup().n_writes();
  const RequestId id = front.submit(prompt_of(4), 400);
  CHECK(front.run_until_finished(id));
  CHECK(front.tokens(id) == scripted_tokens(id, 400));
  // Started and first token, finished, end of work.
  CHECK(front.thread().reader_wakeup().n_writes() - n_writes_before <= 4U);
}

TEST(first_token_and_end_do_not_wait) {
  Script script;
  script.before_token = [](const Slot&) { std::this_thread::sleep_for(2ms); };  // the reader sleeps
  FrontEnd front({.n_slots = 2, .wake_interval_us = kLongUs});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId first = front.submit(prompt_of(4), 50);
  script.gate.allow(1);
  CHECK(front.run_until([&] { return front.count(first, EventKind::kToken) == 1; }));
  script.gate.allow(9);
  script.gate.wait_until_held();
  // A second request beside the first: its start and its only token wake the reader, and bring
  // along what the first has decoded meanwhile.
  const RequestId second = front.submit(prompt_of(4, 5000), 1);
  script.gate.allow(2);
  CHECK(front.run_until_finished(second));
  CHECK(front.count(first, EventKind::kToken) >= 10);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
}

// A step with another request's prompt can be long: what was decoded before it is told before it.
TEST(tokens_do_not_wait_for_the_prefill_of_a_neighbour) {
  Script script;
  FrontEnd front({.n_slots = 2, .wake_interval_us = kLongUs});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId first = front.submit(prompt_of(4), 50);
  script.gate.allow(10);
  script.gate.wait_until_held();
  const RequestId second = front.submit(prompt_of(80, 5000), 1);
  script.gate.allow(1);
  CHECK(front.run_until([&] { return front.count(first, EventKind::kToken) == 11; }));
  CHECK_EQ(front.count(second, EventKind::kPrefill), 0);
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_all_finished());
}

TEST(prefill_progress_does_not_wait) {
  Script script;
  script.before_step = [](std::span<Slot>) { std::this_thread::sleep_for(2ms); };
  FrontEnd front({.wake_interval_us = kLongUs});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(80), 1);
  for (int n_chunks = 1; n_chunks < 10; ++n_chunks) {
    script.gate.allow(1);
    CHECK(front.run_until([&] { return front.count(id, EventKind::kPrefill) >= n_chunks; }));
    script.gate.wait_until_held();
  }
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

// Every step takes longer than the interval, so none of them may keep its token to itself.
TEST(slow_tokens_do_not_share) {
  Script script;
  script.before_token = [](const Slot&) { std::this_thread::sleep_for(2ms); };
  FrontEnd front({.wake_interval_us = 1000});
  front.start(factory_of(script));
  script.gate.allow(0);
  const RequestId id = front.submit(prompt_of(4), 10);
  for (int n_tokens = 1; n_tokens < 10; ++n_tokens) {
    script.gate.allow(1);
    CHECK(front.run_until([&] { return front.count(id, EventKind::kToken) >= n_tokens; }));
    script.gate.wait_until_held();
  }
  script.gate.allow(Gate::kOpen);
  CHECK(front.run_until_finished(id));
}

}  // namespace
}  // namespace decode_thread_wakeup_test
