// Slots of a real model that share fewer cells than they need: everyone waits its turn, nobody
// fails.
#include <algorithm>
#include <array>

#include "check.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace scarce_cells_test {
namespace {

using unpaced::EngineConfig;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::TokenId;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;

constexpr std::int32_t kCells = 512;

EngineConfig config_of(std::int32_t n_slots) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = kCells;
  config.n_ubatch = 64;
  config.kv_unified = n_slots > 1;
  config.cache_bytes_max = -1;
  config.cache_idle_slots = true;
  return config;
}

std::unique_ptr<RequestSpec> weighed(const ModelEngine& engine, std::vector<TokenId> prompt,
                                     std::int32_t n) {
  auto spec = engine.greedy(std::move(prompt), n);
  spec->n_probs = 12;  // with those that are banned
  return spec;
}

struct Shape {
  std::int32_t n_prompt;
  std::int32_t n_tokens;
};

#if defined(__SANITIZE_THREAD__)
constexpr bool kCompares = false;  // what a thread computes alone it computes in the other builds
#else
constexpr bool kCompares = true;
#endif

// All at once, each compared with itself alone. Returns the engine's counters of waits and yields.
std::array<std::uint64_t, 2> run(std::int32_t n_slots, const std::vector<Shape>& shapes) {
  ModelEngine alone(config_of(1));
  ModelEngine together(config_of(n_slots));
  const auto spec_of = [&shapes](const ModelEngine& engine, std::size_t i) {
    const auto first = 100 * static_cast<std::int32_t>(i);
    auto spec = weighed(engine, engine.prompt(shapes[i].n_prompt, first), shapes[i].n_tokens);
    spec->cache_prompt = false;
    return spec;
  };
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ids.push_back(together.front.submit(spec_of(together, i)));
  }
  REQUIRE(together.front.run_until_all_finished());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    CHECK(together.front.reason(ids[i]) == FinishReason::kTokenLimit);
    CHECK_EQ(std::ssize(together.front.tokens(ids[i])), shapes[i].n_tokens);
    if (!kCompares) continue;
    const RequestId expected = alone.front.submit(spec_of(alone, i));
    REQUIRE(alone.front.run_until_finished(expected));
    CHECK(equal_up_to_a_tie(alone.front.events(expected), together.front.events(ids[i])));
  }
  const auto& counters = together.front.thread().counters();
  const bool has_waited = std::ranges::any_of(
      ids, [&](RequestId id) { return together.front.events(id).back().finished.cells_us > 0; });
  CHECK_EQ(has_waited, counters.n_cell_waits.get() > 0);
  CHECK_EQ(counters.n_requests_failed.get(), 0U);
  return {counters.n_cell_waits.get(), counters.n_cells_yielded.get()};
}

TEST(prompts_that_fit_one_at_a_time_are_all_answered) {
  const auto [n_waits, n_yielded] =
      run(4, std::vector<Shape>(8, {.n_prompt = 307, .n_tokens = 20}));
  CHECK(n_waits >= 3);
  CHECK_EQ(n_yielded, 0U);  // nothing is computed twice
}

TEST(texts_that_grow_beyond_the_cells_are_all_finished) {
  const auto [n_waits, n_yielded] =
      run(4, std::vector<Shape>(6, {.n_prompt = 40, .n_tokens = 300}));
  CHECK(n_waits > 0);
  CHECK(n_yielded > 0);
}

TEST(small_and_large_ones_side_by_side) {
  run(3, {{20, 400}, {400, 30}, {30, 60}, {480, 8}, {200, 200}, {10, 10}, {250, 250}});
}

TEST(cancelled_while_they_wait_and_while_others_do) {
  ModelEngine engine(config_of(3));
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<RequestId> ids;
    for (std::int32_t i = 0; i < 4; ++i) {
      ids.push_back(engine.front.submit(engine.greedy(engine.prompt(300, 90 * i), 100)));
    }
    const RequestId first = ids[static_cast<std::size_t>(turn % 2)];
    REQUIRE(engine.front.run_until(
        [&] { return engine.front.thread().counters().n_cell_waits.get() > 0; }));
    CHECK(engine.front.thread().cancel(first));
    CHECK(engine.front.thread().cancel(ids[2]));
    REQUIRE(engine.front.run_until_all_finished());
    for (const RequestId id : ids) {
      const bool is_cancelled = engine.front.reason(id) == FinishReason::kCancelled;
      CHECK(is_cancelled || engine.front.tokens(id).size() == 100U);
    }
  }
}

// What a waiting prompt reuses is given to an older one, and computed after all.
TEST(two_prompts_that_hold_half_each) {
  ModelEngine engine(config_of(2));
  const auto one = [&](std::int32_t n) { return engine.prompt(n, 0); };
  const auto two = [&](std::int32_t n) { return engine.prompt(n, 1000); };
  for (int turn = 0; turn < 3; ++turn) {
    // Neither finds its beginning in a slot that the other one's cells have been taken from.
    std::vector<RequestId> ids;
    for (const std::int32_t n : {240, 400}) {
      ids.push_back(engine.front.submit(weighed(engine, one(n), 4)));
      ids.push_back(engine.front.submit(weighed(engine, two(n), 4)));
      REQUIRE(engine.front.run_until_all_finished());
    }
    for (const RequestId id : ids) CHECK_EQ(engine.front.tokens(id).size(), 4U);
  }
}

// A text without an end gets along with others: it shifts as soon as its own context is full.
TEST(a_context_shift_frees_cells_for_who_waits) {
  EngineConfig config = config_of(2);
  config.context_shift = true;
  ModelEngine engine(config);
  const RequestId endless = engine.front.submit(engine.greedy(engine.prompt(20), -1));
  REQUIRE(engine.front.run_until([&] { return engine.front.tokens(endless).size() > 440U; }));
  const RequestId other = engine.front.submit(engine.greedy(engine.prompt(200, 500), 5));
  REQUIRE(engine.front.run_until_finished(other));
  CHECK_EQ(engine.front.tokens(other).size(), 5U);
  CHECK(engine.front.thread().cancel(endless));
  REQUIRE(engine.front.run_until_all_finished());
  CHECK(engine.front.events(endless).back().finished.n_shifts > 0);
}

// A prompt whose logprobs are wanted says each of them once, however often it is computed.
TEST(prompt_logprobs_are_told_once) {
  ModelEngine engine(config_of(2));
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(150), 300));
  auto spec = weighed(engine, engine.prompt(330, 700), 3);
  spec->prompt_logprobs = true;
  const RequestId echo = engine.front.submit(std::move(spec));
  REQUIRE(engine.front.run_until_all_finished());
  CHECK_EQ(engine.front.tokens(text).size(), 300U);
  CHECK_EQ(engine.front.count(echo, EventKind::kPromptLogprob), 329);
  CHECK_EQ(engine.front.tokens(echo).size(), 3U);
}

}  // namespace
}  // namespace scarce_cells_test
