// The decode thread under a random front end: requests of random length, cancelled at random
// moments, a small token ring, a reader that dawdles. Every request gets its tokens in order and
// exactly one end.
#include <random>

#include "check.h"
#include "front_end.h"
#include "random_pause.h"
#include "scripted_stepper.h"

namespace decode_thread_fuzz_test {
namespace {

using unpaced::DecodeThreadOptions;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::TokenId;
using unpaced::test::FrontEnd;
using unpaced::test::Script;
using unpaced::test::scripted_token;
using unpaced::test::ScriptedStepper;

void check_request(FrontEnd& front, RequestId id, std::int32_t max_tokens, bool cancelled) {
  REQUIRE(front.finished(id));
  const FinishReason reason = front.reason(id);
  CHECK(reason == FinishReason::kTokenLimit || (cancelled && reason == FinishReason::kCancelled));
  const std::vector<TokenId> tokens = front.tokens(id);
  if (reason == FinishReason::kTokenLimit) {
    CHECK_EQ(tokens.size(), static_cast<std::size_t>(max_tokens));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    REQUIRE(tokens[i] == scripted_token(id, static_cast<std::int32_t>(i)));
  }
  CHECK(front.count(id, EventKind::kStarted) <= 1);
  CHECK_EQ(front.count(id, EventKind::kFinished), 1);
}

void fuzz(const DecodeThreadOptions& options, std::uint64_t seed) {
  struct Sent {
    RequestId id;
    std::int32_t max_tokens;
    bool cancelled;
  };
  const int n_requests = 2000 / kSanitizerSlowdown;
  Script script;
  std::vector<Sent> sent;
  FrontEnd front(options);
  front.start([&script] { return std::make_unique<ScriptedStepper>(script); });
  std::mt19937_64 random(seed);
  const auto max_on_loan = static_cast<std::size_t>(options.n_slots + options.n_waiting_max);
  while (sent.size() < static_cast<std::size_t>(n_requests)) {
    if (front.n_on_loan() < max_on_loan && random() % 4 != 0) {
      const auto n_prompt = static_cast<std::size_t>(1 + random() % 40);
      const auto max_tokens = static_cast<std::int32_t>(1 + random() % 40);
      const RequestId id = front.submit(
          std::vector<TokenId>(n_prompt, static_cast<TokenId>(random() % 3)), max_tokens);
      REQUIRE(id != 0);
      sent.push_back({.id = id, .max_tokens = max_tokens, .cancelled = false});
    }
    if (!sent.empty() && random() % 4 == 0) {
      Sent& victim = sent[sent.size() - 1 - random() % std::min<std::size_t>(sent.size(), 8)];
      if (front.thread().cancel(victim.id)) victim.cancelled = true;
    }
    if (random() % 3 == 0) front.drain();
    if (front.n_on_loan() == max_on_loan) {
      REQUIRE(front.run_until([&] { return front.n_on_loan() < max_on_loan; }));
    }
    unpaced::test::pause_at_random(random);
  }
  REQUIRE(front.run_until_all_finished());
  for (const Sent& request : sent) {
    check_request(front, request.id, request.max_tokens, request.cancelled);
  }
  CHECK_EQ(front.thread().counters().n_requests_finished.get(), sent.size());
  CHECK(front.thread().reader_wakeup().n_writes() <= front.n_parks());
}

TEST(one_slot) { fuzz({.n_slots = 1, .n_waiting_max = 4, .n_events = 64}, 11); }
TEST(four_slots) { fuzz({.n_slots = 4, .n_waiting_max = 16, .n_events = 256}, 12); }
TEST(tiny_token_ring) { fuzz({.n_slots = 3, .n_waiting_max = 8, .n_events = 2}, 13); }

TEST(stop_at_any_moment) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 100 / kSanitizerSlowdown; ++i) {
    Script script;
    FrontEnd front({.n_slots = 2, .n_waiting_max = 8, .n_events = 16});
    front.start([&script] { return std::make_unique<ScriptedStepper>(script); });
    for (int k = 0; k < 6; ++k) (void)front.submit(std::vector<TokenId>(9, 1), 1000);
    unpaced::test::spin(random() % 50'000);
    if (i % 2 == 0) front.drain();
    front.thread().stop();
    CHECK_EQ(script.n_destroyed.load(std::memory_order_relaxed), 1);
  }
}

}  // namespace
}  // namespace decode_thread_fuzz_test
