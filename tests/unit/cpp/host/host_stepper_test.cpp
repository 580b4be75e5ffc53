// HostStepper on a real model: prefill in chunks, reuse of the KV, slots beside each other, limits,
// errors, logprobs.
#include "host/host_stepper.h"

#include <cmath>
#include <limits>

#include "check.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace host_stepper_test {
namespace {

using unpaced::EngineConfig;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::TokenEvent;
using unpaced::TokenId;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;

EngineConfig config_of(std::int32_t n_slots, std::int32_t n_ctx_slot, std::int32_t n_chunk = 512) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_slots * n_ctx_slot;
  config.n_ubatch = n_chunk;
  return config;
}

std::vector<TokenId> greedy_tokens(ModelEngine& engine, const std::vector<TokenId>& prompt,
                                   std::int32_t n) {
  const RequestId id = engine.front.submit(engine.greedy(prompt, n));
  REQUIRE(engine.front.run_until_finished(id));
  CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
  return engine.front.tokens(id);
}

// With what equal_up_to_a_tie wants to know.
std::unique_ptr<RequestSpec> weighed(const ModelEngine& engine, std::vector<TokenId> prompt,
                                     std::int32_t n) {
  auto spec = engine.greedy(std::move(prompt), n);
  spec->n_probs = 2;
  return spec;
}

TEST(token_limit_and_counts) {
  ModelEngine engine(config_of(1, 256));
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(10), 30));
  CHECK(engine.front.run_until_finished(id));
  CHECK_EQ(engine.front.tokens(id).size(), 30U);
  CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.events(id).back().finished.n_cells, 39);
  const auto& counters = engine.front.thread().counters();
  CHECK_EQ(counters.n_tokens_prompt.get(), 10U);
  CHECK_EQ(counters.n_tokens_decoded.get(), 30U);
  CHECK_EQ(counters.n_steps.get(), 30U);  // one prefill, which gives the first token, and 29 more
  const RequestId none = engine.front.submit(engine.greedy(engine.prompt(10), 0));
  CHECK(engine.front.run_until_finished(none));
  CHECK_EQ(engine.front.tokens(none).size(), 0U);
}

TEST(prefill_goes_in_chunks_and_does_not_change_the_result) {
  ModelEngine whole(config_of(1, 512));
  ModelEngine chunked(config_of(1, 512, 32));
  const std::vector<TokenId> prompt = whole.prompt(200);
  const RequestId id = chunked.front.submit(weighed(chunked, prompt, 20));
  CHECK(chunked.front.run_until_finished(id));
  CHECK_EQ(chunked.front.count(id, EventKind::kPrefill), 7);
  std::int32_t n_before = 0;
  for (const TokenEvent& event : chunked.front.events(id)) {
    if (event.kind != EventKind::kPrefill) continue;
    CHECK(event.prompt.n_processed - n_before <= 32);
    n_before = event.prompt.n_processed;
  }
  CHECK_EQ(n_before, 200);
  const RequestId expected = whole.front.submit(weighed(whole, prompt, 20));
  CHECK(whole.front.run_until_finished(expected));
  CHECK_EQ(whole.front.count(expected, EventKind::kPrefill), 1);
  CHECK(equal_up_to_a_tie(whole.front.events(expected), chunked.front.events(id)));
}

TEST(cancel_during_prefill_leaves_the_rest_undone) {
  ModelEngine engine(config_of(1, 2048, 16), 4);  // a full ring holds the thread in mid-prompt
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(500), 5));
  while (engine.front.thread().counters().n_ring_full.get() == 0) std::this_thread::yield();
  CHECK(engine.front.thread().cancel(id));
  CHECK(engine.front.run_until_finished(id));
  CHECK(engine.front.reason(id) == FinishReason::kCancelled);
  CHECK(engine.front.events(id).back().finished.n_cells <= 16 * 6);
  CHECK_EQ(greedy_tokens(engine, engine.prompt(20, 7), 5).size(), 5U);
}

TEST(common_prefix_is_reused_with_the_same_result) {
  ModelEngine engine(config_of(1, 512, 1));  // one token a batch: equal to the last bit
  const std::vector<TokenId> prompt = engine.prompt(60);
  const std::vector<TokenId> cold = greedy_tokens(engine, prompt, 20);
  const std::uint64_t n_prompt_cold = engine.front.thread().counters().n_tokens_prompt.get();
  CHECK(greedy_tokens(engine, prompt, 20) == cold);
  CHECK_EQ(engine.front.thread().counters().n_tokens_prompt.get(), n_prompt_cold + 1);
  CHECK_EQ(engine.front.thread().counters().n_tokens_cached.get(), 59U);
  // A prompt that parts from the cached one in the middle, then the first again.
  std::vector<TokenId> other = prompt;
  other[30] = prompt[0];
  const std::vector<TokenId> other_warm = greedy_tokens(engine, other, 20);
  CHECK(greedy_tokens(engine, prompt, 20) == cold);
  auto fresh = engine.greedy(other, 20);
  fresh->cache_prompt = false;
  const RequestId id = engine.front.submit(std::move(fresh));
  CHECK(engine.front.run_until_finished(id));
  CHECK_EQ(engine.front.events(id).front().prompt.n_cached, 0);
  CHECK(engine.front.tokens(id) == other_warm);
}

TEST(slots_beside_each_other_give_what_each_gives_alone) {
  ModelEngine alone(config_of(1, 512));
  ModelEngine together(config_of(3, 512));
  std::vector<RequestId> ids;
  for (std::int32_t i = 0; i < 6; ++i) {
    ids.push_back(together.front.submit(weighed(together, together.prompt(20 + i, 100 * i), 25)));
  }
  CHECK(together.front.run_until_all_finished());
  for (std::int32_t i = 0; i < 6; ++i) {
    const RequestId expected =
        alone.front.submit(weighed(alone, alone.prompt(20 + i, 100 * i), 25));
    CHECK(alone.front.run_until_finished(expected));
    const RequestId beside = ids[static_cast<std::size_t>(i)];
    CHECK_EQ(together.front.tokens(beside).size(), 25U);
    CHECK(equal_up_to_a_tie(alone.front.events(expected), together.front.events(beside)));
  }
}

TEST(context_limit_ends_the_request_within_the_context) {
  ModelEngine engine(config_of(1, 256));
  const std::int32_t n_ctx = engine.front.thread().n_ctx();
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(n_ctx - 20), -1));
  CHECK(engine.front.run_until_finished(id));
  CHECK(engine.front.reason(id) == FinishReason::kContextLimit);
  CHECK(engine.front.events(id).back().finished.n_cells < n_ctx);
  CHECK_EQ(engine.front.tokens(id).size(), 20U);
}

TEST(prompt_that_does_not_fit_is_an_error_of_that_request) {
  ModelEngine engine(config_of(1, 256));
  const std::int32_t n_ctx = engine.front.thread().n_ctx();
  for (const std::int32_t n : {0, n_ctx, n_ctx + 100}) {
    const RequestId id = engine.front.submit(engine.greedy(engine.prompt(n), 5));
    CHECK(engine.front.run_until_finished(id));
    CHECK(engine.front.reason(id) == FinishReason::kException);
  }
  CHECK_EQ(greedy_tokens(engine, engine.prompt(n_ctx - 5), 5).size(), 5U);
}

TEST(token_that_does_not_exist_is_an_error_of_that_request_alone) {
  ModelEngine engine(config_of(2, 256));
  const RequestId good = engine.front.submit(engine.greedy(engine.prompt(8), 40));
  const RequestId bad = engine.front.submit(engine.greedy({5, engine.n_vocab + 7, 6}, 5));
  CHECK(engine.front.run_until_all_finished());
  CHECK(engine.front.reason(bad) == FinishReason::kDecodeFailed);
  CHECK(engine.front.events(bad).back().finished.status != 0);
  CHECK(engine.front.reason(good) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.tokens(good).size(), 40U);
}

TEST(request_that_bans_every_token_ends_with_an_error) {
  ModelEngine engine(config_of(1, 256));
  auto spec = engine.greedy(engine.prompt(8), 5);
  spec->logit_bias.clear();
  for (TokenId token = 0; token < engine.n_vocab; ++token) {
    spec->logit_bias.push_back({token, -std::numeric_limits<float>::infinity()});
  }
  const RequestId id = engine.front.submit(std::move(spec));
  CHECK(engine.front.run_until_finished(id));
  CHECK(engine.front.reason(id) == FinishReason::kNonFinite);
  CHECK_EQ(greedy_tokens(engine, engine.prompt(8), 5).size(), 5U);
}

TEST(logprobs_precede_their_token_best_first) {
  ModelEngine engine(config_of(1, 256));
  auto spec = engine.greedy(engine.prompt(8), 12);
  spec->logit_bias.clear();
  spec->n_probs = 6;
  const RequestId id = engine.front.submit(std::move(spec));
  CHECK(engine.front.run_until_finished(id));
  std::vector<unpaced::TokenLogprob> pairs;
  int n_tokens = 0;
  for (const TokenEvent& event : engine.front.events(id)) {
    if (event.kind == EventKind::kLogprobs) {
      pairs.insert(pairs.end(), event.logprobs.pair, event.logprobs.pair + event.logprobs.n_pairs);
    } else if (event.kind == EventKind::kToken) {
      CHECK_EQ(pairs.size(), 6U);
      CHECK_EQ(pairs.front().token, event.token.token);  // greedy
      CHECK_EQ(pairs.front().logprob, event.token.logprob);
      for (std::size_t i = 1; i < pairs.size(); ++i) {
        CHECK(pairs[i].logprob <= pairs[i - 1].logprob && pairs[i].logprob <= 0.0F);
      }
      pairs.clear();
      ++n_tokens;
    }
  }
  CHECK_EQ(n_tokens, 12);
}

TEST(prompt_logprobs_cover_every_prompt_token_but_the_first) {
  ModelEngine engine(config_of(1, 512));
  for (int turn = 0; turn < 2; ++turn) {  // the second time the prompt is in the KV, and not reused
    auto spec = engine.greedy(engine.prompt(150), 3);
    spec->prompt_logprobs = true;
    spec->n_probs = 2;
    const RequestId id = engine.front.submit(std::move(spec));
    CHECK(engine.front.run_until_finished(id));
    std::int32_t next = 1;
    for (const TokenEvent& event : engine.front.events(id)) {
      if (event.kind != EventKind::kPromptLogprob) continue;
      CHECK_EQ(event.token.n_decoded, next);
      CHECK_EQ(event.token.token, engine.prompt(150)[static_cast<std::size_t>(next)]);
      CHECK(std::isfinite(event.token.logprob) && event.token.logprob <= 0.0F);
      ++next;
    }
    CHECK_EQ(next, 150);
    CHECK_EQ(engine.front.count(id, EventKind::kToken), 3);
  }
}

TEST(stop_in_the_middle_of_work) {
  for (int i = 0; i < 3; ++i) {
    ModelEngine engine(config_of(2, 1024, 64));
    for (int k = 0; k < 4; ++k) {
      (void)engine.front.submit(engine.greedy(engine.prompt(300, 50 * k), -1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * i));
    engine.front.thread().stop();
    CHECK(engine.front.thread().state() == unpaced::EngineState::kStopped);
  }
}

TEST(missing_model_file_is_named) {
  EngineConfig config;
  config.model_path = "/nonexistent/model.gguf";
  ModelEngine engine(config);
  CHECK(engine.front.thread().state() == unpaced::EngineState::kFailed);
  CHECK(engine.front.thread().error().find(config.model_path) != std::string::npos);
}

}  // namespace
}  // namespace host_stepper_test
