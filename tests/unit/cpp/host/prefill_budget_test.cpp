// A real model's prompts beside texts that decode: chunks by the budget, the same tokens.
#include <algorithm>

#include "check.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace prefill_budget_test {
namespace {

using unpaced::EngineConfig;
using unpaced::EventKind;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::TokenEvent;
using unpaced::TokenId;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;

EngineConfig config_of(std::int32_t n_slots, std::int32_t budget) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_slots * 1024;
  config.n_ubatch = 256;
  config.prefill_budget = budget;
  return config;
}

std::unique_ptr<RequestSpec> weighed(const ModelEngine& engine, std::vector<TokenId> prompt,
                                     std::int32_t n) {
  auto spec = engine.greedy(std::move(prompt), n);
  spec->n_probs = 2;
  return spec;
}

// Prompt tokens of each chunk.
std::vector<std::int32_t> chunks(ModelEngine& engine, RequestId id) {
  std::vector<std::int32_t> sizes;
  std::int32_t n_before = 0;
  for (const TokenEvent& event : engine.front.events(id)) {
    if (event.kind != EventKind::kPrefill) continue;
    sizes.push_back(event.prompt.n_processed - n_before);
    n_before = event.prompt.n_processed;
  }
  return sizes;
}

void await_tokens(ModelEngine& engine, RequestId id, std::size_t n) {
  REQUIRE(engine.front.run_until([&] { return engine.front.tokens(id).size() >= n; }));
}

TEST(alone_a_prompt_has_whole_chunks) {
  ModelEngine engine(config_of(4, 16));
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(600), 4));
  CHECK(engine.front.run_until_finished(id));
  CHECK(chunks(engine, id) == std::vector<std::int32_t>({256, 256, 88}));
  CHECK_EQ(engine.front.thread().counters().n_steps_beside.get(), 0U);
}

TEST(beside_a_text_it_has_the_budget_and_the_same_tokens) {
  ModelEngine alone(config_of(1, 16));
  ModelEngine engine(config_of(4, 16));
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 900));
  await_tokens(engine, text, 3);
  const RequestId id = engine.front.submit(weighed(engine, engine.prompt(600, 50), 20));
  CHECK(engine.front.run_until_all_finished());
  const std::vector<std::int32_t> sizes = chunks(engine, id);
  CHECK_EQ(sizes.size(), 38U);
  CHECK_EQ(std::ranges::max(sizes), 16);
  const auto& counters = engine.front.thread().counters();
  CHECK_EQ(counters.n_tokens_beside.get(), 600U);
  CHECK_EQ(counters.n_tokens_beside_max.get(), 16U);
  CHECK_EQ(counters.n_steps_beside.get(), 38U);
  const RequestId expected = alone.front.submit(weighed(alone, alone.prompt(600, 50), 20));
  CHECK(alone.front.run_until_finished(expected));
  CHECK(equal_up_to_a_tie(alone.front.events(expected), engine.front.events(id)));
}

TEST(a_short_prompt_overtakes_a_long_one_and_both_share_a_step) {
  ModelEngine engine(config_of(4, 16));
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 900));
  await_tokens(engine, text, 3);
  const RequestId long_one = engine.front.submit(engine.greedy(engine.prompt(900, 50), 4));
  REQUIRE(engine.front.run_until([&] { return !chunks(engine, long_one).empty(); }));
  const RequestId short_one = engine.front.submit(engine.greedy(engine.prompt(20, 5000), 4));
  CHECK(engine.front.run_until_finished(short_one));
  // 16 of it in one step, 4 in the next, beside 12 of the long one.
  CHECK(chunks(engine, short_one) == std::vector<std::int32_t>({16, 4}));
  CHECK(engine.front.count(long_one, EventKind::kToken) == 0);
  CHECK(engine.front.run_until_all_finished());
  const std::vector<std::int32_t> sizes = chunks(engine, long_one);
  CHECK(std::ranges::find(sizes, 12) != sizes.end());
  CHECK_EQ(engine.front.thread().counters().n_tokens_beside_max.get(), 16U);
}

TEST(in_common_cells_a_text_and_a_prompt_have_batches_of_their_own) {
  EngineConfig config = config_of(4, 64);
  config.kv_unified = true;
  ModelEngine engine(config);
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 400));
  await_tokens(engine, text, 3);
  engine.front.submit(engine.greedy(engine.prompt(600, 50), 4));
  CHECK(engine.front.run_until_all_finished());
  const auto& counters = engine.front.thread().counters();
  CHECK_EQ(counters.n_steps_beside.get(), 10U);
  // Nine batches of 64 and one of 24, and none of 65; a step with both has two.
  std::uint64_t n_batches = 0;
  for (const auto& n : counters.n_batches) n_batches += n.get();
  CHECK_EQ(n_batches, counters.n_steps.get() + counters.n_steps_beside.get());
  CHECK_EQ(counters.n_batches[7].get(), 0U);
  CHECK_EQ(counters.n_batches[6].get(), 9U);
  CHECK_EQ(counters.n_batches[5].get(), 1U);
}

TEST(without_a_budget_chunks_are_as_large_as_the_texts_leave_them) {
  ModelEngine engine(config_of(4, 0));
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 500));
  await_tokens(engine, text, 3);
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(600, 50), 4));
  CHECK(engine.front.run_until_all_finished());
  CHECK(chunks(engine, id) == std::vector<std::int32_t>({255, 255, 90}));
}

TEST(costs_are_learned_from_steps) {
  ModelEngine engine(config_of(4, 64));
  const auto& counters = engine.front.thread().counters();
  CHECK_EQ(counters.prefill_budget.get(), 64U);
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 400));
  await_tokens(engine, text, 3);
  const RequestId id = engine.front.submit(engine.greedy(engine.prompt(300, 50), 4));
  CHECK(engine.front.run_until_finished(id));
  CHECK(counters.step_decode_us.get() > 0);
  CHECK(counters.step_prompt_token_ns.get() > 0);
  CHECK(counters.n_steps_observed.get() > 8);
  CHECK(engine.front.run_until_all_finished());
  CHECK(counters.gap_us_max.get() > 0);
  std::uint64_t n_batches = 0;
  for (const auto& n : counters.n_batches) n_batches += n.get();
  CHECK_EQ(n_batches, counters.n_steps.get());
  // A request's first token comes of its prompt, its last one is not computed.
  const std::uint64_t n_decoded = counters.n_tokens_decoded.get() - 2;
  CHECK_EQ(counters.n_batch_tokens.get(), counters.n_tokens_prompt.get() + n_decoded);
}

}  // namespace
}  // namespace prefill_budget_test
