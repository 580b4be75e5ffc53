// A grammar that takes its time does not hold the other slots, nor the decode thread, and no token
// changes by it.
#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>
#include <thread>

#include "check.h"
#include "grammar/token_mask.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace held_draws_test {
namespace {

using namespace std::chrono_literals;
using unpaced::EngineConfig;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::TokenId;
using unpaced::TokenMask;
using unpaced::TokenMaskLimits;
using unpaced::TokenMatcher;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;

// Refuses every third token, and says so only while its gate is open.
class GatedMatcher final : public TokenMatcher {
 public:
  GatedMatcher(std::int32_t n_vocab, std::shared_ptr<std::atomic<bool>> is_open)
      : n_vocab_(n_vocab), is_open_(std::move(is_open)) {}

  std::int32_t n_vocab() const noexcept override { return n_vocab_; }
  bool allows(TokenId token) override {
    while (!is_open_->load()) std::this_thread::sleep_for(1ms);
    return (token + n_accepted_) % 3 != 0;
  }
  void fill(std::span<std::uint32_t> words) override {
    for (auto& word : words) word = 0;
    for (TokenId token = 0; token < n_vocab_; ++token) {
      const auto i = static_cast<std::uint32_t>(token);
      if (allows(token)) words[i / 32] |= 1U << (i % 32);
    }
  }
  void accept(TokenId /*token*/) override { n_accepted_ += 1; }
  void accept_text(std::string_view /*text*/) override {}
  void restart() override { n_accepted_ = 0; }
  std::string failure() const override { return {}; }

 private:
  const std::int32_t n_vocab_;
  const std::shared_ptr<std::atomic<bool>> is_open_;
  std::int32_t n_accepted_ = 0;
};

struct Gate {
  explicit Gate(bool open) : is_open(std::make_shared<std::atomic<bool>>(open)) {}
  ~Gate() { is_open->store(true); }  // the worker ends then
  std::shared_ptr<std::atomic<bool>> is_open;

  std::unique_ptr<RequestSpec> request(const ModelEngine& engine, std::int32_t n,
                                       std::chrono::milliseconds answer_within = 60s) {
    auto spec = engine.greedy(engine.prompt(20), n);
    spec->n_probs = 10;
    spec->mask =
        std::make_shared<TokenMask>(std::make_unique<GatedMatcher>(engine.n_vocab, is_open),
                                    nullptr, TokenMaskLimits{.answer_within = answer_within});
    return spec;
  }
};

EngineConfig config_of(std::int32_t n_slots) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_slots * 256;
  return config;
}

std::unique_ptr<RequestSpec> plain_request(const ModelEngine& engine) {
  auto spec = engine.greedy(engine.prompt(30, 7), 100);
  spec->n_probs = 2;
  return spec;
}

TEST(others_decode_to_their_end_while_a_grammar_is_silent) {
  ModelEngine alone(config_of(1));
  Gate open(true);
  const RequestId plain_alone = alone.front.submit(plain_request(alone));
  const RequestId masked_alone = alone.front.submit(open.request(alone, 25));
  REQUIRE(alone.front.run_until_all_finished());

  ModelEngine engine(config_of(3));
  Gate gate(false);
  const RequestId masked = engine.front.submit(gate.request(engine, 25));
  const RequestId plain = engine.front.submit(plain_request(engine));
  REQUIRE(engine.front.run_until_finished(plain));
  CHECK(equal_up_to_a_tie(alone.front.events(plain_alone), engine.front.events(plain)));
  CHECK_EQ(engine.front.tokens(masked).size(), 0U);
  gate.is_open->store(true);
  REQUIRE(engine.front.run_until_finished(masked));
  // The token that was refused while the others decoded was drawn again from the row kept for it.
  CHECK(equal_up_to_a_tie(alone.front.events(masked_alone), engine.front.events(masked)));
}

TEST(a_gate_that_opens_and_closes_changes_no_token) {
  ModelEngine alone(config_of(1));
  Gate open(true);
  const RequestId expected = alone.front.submit(open.request(alone, 60));
  REQUIRE(alone.front.run_until_finished(expected));

  ModelEngine engine(config_of(4));
  Gate gate(true);
  std::atomic<bool> is_over{false};
  std::thread keeper([&] {
    while (!is_over.load()) {
      gate.is_open->store(!gate.is_open->load());
      std::this_thread::sleep_for(300us);
    }
    gate.is_open->store(true);
  });
  std::vector<RequestId> masked;
  for (int i = 0; i < 3; ++i) masked.push_back(engine.front.submit(gate.request(engine, 60)));
  const RequestId plain = engine.front.submit(engine.greedy(engine.prompt(30, 7), 100));
  const bool all = engine.front.run_until_all_finished();
  is_over.store(true);
  keeper.join();
  REQUIRE(all);
  for (const RequestId id : masked) {
    CHECK(equal_up_to_a_tie(alone.front.events(expected), engine.front.events(id)));
  }
  CHECK_EQ(engine.front.tokens(plain).size(), 100U);
}

TEST(a_silent_grammar_does_not_hold_a_cancel) {
  for (const std::int32_t n_slots : {1, 2}) {
    ModelEngine engine(config_of(n_slots));
    Gate gate(false);
    const RequestId masked = engine.front.submit(gate.request(engine, 25));
    REQUIRE(engine.front.run_until(
        [&] { return engine.front.count(masked, EventKind::kPrefill) > 0; }));
    CHECK(engine.front.thread().cancel(masked));
    REQUIRE(engine.front.run_until_finished(masked));
    CHECK(engine.front.reason(masked) == FinishReason::kCancelled);
    // The slot is as good as new.
    const RequestId next = engine.front.submit(engine.greedy(engine.prompt(20), 10));
    REQUIRE(engine.front.run_until_finished(next));
    CHECK_EQ(engine.front.tokens(next).size(), 10U);
  }
}

TEST(a_silent_grammar_ends_its_request_alone) {
  ModelEngine engine(config_of(2));
  Gate gate(false);
  const RequestId masked = engine.front.submit(gate.request(engine, 25, 50ms));
  const RequestId plain = engine.front.submit(engine.greedy(engine.prompt(30, 7), 100));
  REQUIRE(engine.front.run_until_all_finished());
  CHECK(engine.front.reason(masked) == FinishReason::kGrammarFailed);
  CHECK(engine.front.reason(plain) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.tokens(plain).size(), 100U);
}

}  // namespace
}  // namespace held_draws_test
