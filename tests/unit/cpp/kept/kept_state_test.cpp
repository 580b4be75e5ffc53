// States of a real model's slots on their way to host memory and back, part by part, while other
// slots decode.
#include "check.h"
#include "model_engine.h"
#include "same_bytes.h"
#include "tied_tokens.h"

namespace kept_state_test {
namespace {

using unpaced::EngineConfig;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::SlotAction;
using unpaced::SlotState;
using unpaced::TokenId;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;
using unpaced::test::same_bytes;

EngineConfig config_of(std::int32_t n_slots, std::int32_t n_ctx) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_ctx;
  config.kv_unified = n_slots > 1;
  config.cache_bytes_max = -1;
  // Flash attention's sums depend on where the cells lie, and they move.
  config.flash_attn = 0;
  return config;
}

RequestId run(ModelEngine& engine, const std::vector<TokenId>& prompt, std::int32_t n,
              std::int32_t slot = -1, std::uint32_t n_probs = 0) {
  auto spec = engine.greedy(prompt, n);
  spec->id_slot = slot;
  spec->n_probs = n_probs;
  const RequestId id = engine.front.submit(std::move(spec));
  REQUIRE(engine.front.run_until_finished(id));
  return id;
}

std::int32_t n_cached(ModelEngine& engine, RequestId id) {
  return engine.front.events(id).front().prompt.n_cached;
}

SlotState copy(ModelEngine& engine) {
  SlotAction action{.slot = 0};
  REQUIRE(engine.front.submit(action));
  REQUIRE(engine.front.run_until([&] { return engine.front.finished(action.id); }));
  return std::move(action.state);
}

// One slot, whose prompts take turns: each comes back as it was.
TEST(prompts_come_back_bit_for_bit) {
  for (const std::int32_t n_slots : {1, 3}) {
    ModelEngine engine(config_of(n_slots, 2048));
    std::vector<std::vector<TokenId>> prompts;
    std::vector<RequestId> first;
    for (std::int32_t i = 0; i < 3; ++i) {
      prompts.push_back(engine.prompt(300 + 50 * i, 100 + 700 * i));
      first.push_back(run(engine, prompts.back(), 12));
    }
    for (std::int32_t round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        const RequestId again = run(engine, prompts[i], 12);
        CHECK_EQ(n_cached(engine, again), static_cast<std::int32_t>(prompts[i].size()) - 1);
        // Computed as a batch the first time, and its last token alone from then on.
        if (round > 0) CHECK(engine.front.tokens(again) == engine.front.tokens(first[i]));
        first[i] = again;
      }
    }
    CHECK_EQ(engine.front.thread().counters().n_cache_lost.get(), 0U);
  }
}

// Every byte, with V as rows and, without flash attention, as columns.
TEST(a_state_that_came_back_is_the_one_that_went) {
  for (const std::int32_t flash_attn : {0, 1}) {
    EngineConfig config = config_of(1, 1024);
    config.flash_attn = flash_attn;
    ModelEngine engine(config);
    run(engine, engine.prompt(60), 40);
    const SlotState before = copy(engine);
    run(engine, engine.prompt(100, 900), 5);
    // The last token is computed anew, alone as the first time.
    CHECK_EQ(n_cached(engine, run(engine, before.tokens, 0)), 98);
    const SlotState after = copy(engine);
    CHECK(after.tokens == before.tokens);
    CHECK(same_bytes(after.bytes(), before.bytes()));
  }
}

// It decodes alone, so that its sums have the shapes that they had before; but its cells may be
// others, by how far the copies are, and a product with V adds them up in their order.
TEST(a_stream_says_the_same_while_states_are_copied) {
  ModelEngine engine(config_of(4, 4096));
  const std::vector<TokenId> prompt = engine.prompt(40);
  run(engine, prompt, 100, 3);
  const RequestId before = run(engine, prompt, 100, 3, 10);
  for (std::int32_t i = 0; i < 3; ++i) run(engine, engine.prompt(900, 50 + 950 * i), 1, i);
  const RequestId during = run(engine, prompt, 100, -1, 10);
  CHECK_EQ(n_cached(engine, during), 39);
  CHECK(equal_up_to_a_tie(engine.front.events(before), engine.front.events(during)));
  CHECK(engine.front.thread().counters().cache_us.get() > 0);
}

TEST(prompts_come_back_beside_a_stream) {
  ModelEngine engine(config_of(3, 4096));
  const RequestId stream = engine.front.submit(engine.greedy(engine.prompt(40), 300));
  for (std::int32_t i = 0; i < 6; ++i) {
    const RequestId id = run(engine, engine.prompt(400, 50 + 450 * (i % 3)), 3);
    CHECK_EQ(n_cached(engine, id), i < 3 ? 0 : 399);
  }
  REQUIRE(engine.front.run_until_finished(stream));
  CHECK_EQ(engine.front.tokens(stream).size(), 300U);
}

// As nearly all prompts do, the first tokens of the others are its own: what was displaced has lent
// them, and is not copied yet when it comes back.
TEST(prompts_that_share_their_beginning_come_back_before_they_are_copied) {
  for (const std::int32_t n_slots : {1, 3}) {
    for (const std::int32_t n_shared : {1, 60}) {
      ModelEngine engine(config_of(n_slots, 4096));
      const std::vector<TokenId> prompt = engine.prompt(900, 10);
      std::vector<TokenId> other(prompt.begin(), prompt.begin() + n_shared);
      other.resize(static_cast<std::size_t>(n_shared) + 20, engine.prompt(1, 1000).front());
      run(engine, prompt, 5, 0);
      const SlotState before = copy(engine);
      auto spec = engine.greedy(other, 1);
      spec->id_slot = 0;
      auto again = engine.greedy(before.tokens, 0);
      again->id_slot = 0;
      // No turn of copies between them.
      const RequestId first = engine.front.submit(std::move(spec));
      const RequestId second = engine.front.submit(std::move(again));
      REQUIRE(engine.front.run_until_finished(second));
      CHECK_EQ(n_cached(engine, first), n_shared);
      CHECK_EQ(n_cached(engine, second), 903);
      const SlotState after = copy(engine);
      CHECK(after.tokens == before.tokens);
      CHECK(same_bytes(after.bytes(), before.bytes()));
      CHECK_EQ(n_cached(engine, run(engine, other, 1, 0)), n_shared + 19);
      CHECK_EQ(engine.front.thread().counters().n_cache_lost.get(), 0U);
    }
  }
}

// What has been lent to a stream comes back as a copy.
TEST(a_prompt_comes_back_while_a_stream_has_some_of_its_cells) {
  ModelEngine engine(config_of(3, 4096));
  const std::vector<TokenId> prompt = engine.prompt(900, 10);
  std::vector<TokenId> other(prompt.begin(), prompt.begin() + 60);
  other.resize(80, engine.prompt(1, 1000).front());
  run(engine, prompt, 12, 0);
  const RequestId alone = run(engine, prompt, 12, 0);
  auto spec = engine.greedy(other, 200);
  spec->id_slot = 0;
  const RequestId stream = engine.front.submit(std::move(spec));
  REQUIRE(engine.front.run_until([&] { return !engine.front.events(stream).empty(); }));
  const RequestId again = run(engine, prompt, 12);
  CHECK_EQ(n_cached(engine, again), 899);
  CHECK(!engine.front.finished(stream));
  REQUIRE(engine.front.run_until_finished(stream));
  CHECK_EQ(engine.front.tokens(stream).size(), 200U);
  // Its last token is computed alone once more: what it reuses is bit for bit what it was.
  const RequestId alone_again = run(engine, prompt, 12);
  CHECK_EQ(n_cached(engine, alone_again), 899);
  CHECK(engine.front.tokens(alone_again) == engine.front.tokens(alone));
  CHECK_EQ(engine.front.thread().counters().n_cache_lost.get(), 0U);
}

// Where the prompts together are more than all cells, who comes waits for the copies.
TEST(prompts_come_back_where_cells_are_short) {
  ModelEngine engine(config_of(2, 512));
  const std::vector<TokenId> one = engine.prompt(300, 10);
  const std::vector<TokenId> two = engine.prompt(300, 500);
  run(engine, one, 3);
  run(engine, two, 3);
  for (std::int32_t i = 0; i < 4; ++i) {
    CHECK_EQ(n_cached(engine, run(engine, i % 2 == 0 ? one : two, 3)), 299);
  }
  CHECK_EQ(engine.front.thread().counters().n_cache_lost.get(), 0U);
}

// A running request that needs cells gets those of a copy under way.
TEST(a_copy_gives_way_to_a_running_request) {
  ModelEngine engine(config_of(2, 512));
  const RequestId stream = engine.front.submit(engine.greedy(engine.prompt(20), 400));
  run(engine, engine.prompt(60, 100), 3);
  run(engine, engine.prompt(60, 300), 3);
  REQUIRE(engine.front.run_until_finished(stream));
  CHECK(engine.front.reason(stream) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.tokens(stream).size(), 400U);
}

TEST(cancelled_while_its_state_comes_back) {
  ModelEngine engine(config_of(2, 4096));
  const std::vector<TokenId> prompt = engine.prompt(900, 7);
  run(engine, prompt, 2);
  run(engine, engine.prompt(900, 1000), 2);
  for (std::int32_t i = 0; i < 5; ++i) {
    const RequestId id = engine.front.submit(engine.greedy(prompt, 5));
    CHECK(engine.front.thread().cancel(id));
    REQUIRE(engine.front.run_until_finished(id));
  }
  const RequestId again = run(engine, prompt, 5);
  CHECK(n_cached(engine, again) > 0);
  CHECK_EQ(engine.front.tokens(again).size(), 5U);
}

TEST(stopped_in_the_middle_of_a_copy) {
  for (std::int32_t i = 0; i < 3; ++i) {
    ModelEngine engine(config_of(2, 4096));
    run(engine, engine.prompt(900, 7), 2);
    const RequestId id = engine.front.submit(engine.greedy(engine.prompt(900, 1000), 50));
    engine.front.thread().stop();
    engine.front.drain();
    CHECK(engine.front.finished(id));
  }
}

// Chunks that moved share no cell with a copy under way.
TEST(moved_chunks_leave_the_kept_prompt_as_it_was) {
  ModelEngine engine(config_of(1, 2048));
  const std::vector<TokenId> prompt = engine.prompt(300);
  run(engine, prompt, 1);
  std::vector<TokenId> shorter(prompt.begin(), prompt.begin() + 10);
  shorter.insert(shorter.end(), prompt.begin() + 200, prompt.begin() + 280);
  auto spec = engine.greedy(shorter, 5);
  spec->n_cache_reuse = 32;
  const RequestId moved = engine.front.submit(std::move(spec));
  REQUIRE(engine.front.run_until_finished(moved));
  CHECK_EQ(n_cached(engine, moved), 89);
  CHECK_EQ(n_cached(engine, run(engine, prompt, 5)), 299);
}

}  // namespace
}  // namespace kept_state_test
