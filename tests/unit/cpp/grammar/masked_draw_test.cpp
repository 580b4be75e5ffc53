// draw_token: a reasoning budget and a grammar beside each other.
#include "grammar/masked_draw.h"

#include <memory>
#include <string>
#include <vector>

#include "check.h"

namespace masked_draw_test {
namespace {

using namespace unpaced;  // what is tested is a function of many parts

constexpr std::int32_t kVocab = 64;
constexpr TokenId kThink = 1;
constexpr TokenId kDone = 2;
constexpr TokenId kEos = 3;

// Allows everything until kDone comes, then multiples of 10 alone. Remembers what it was told.
class AfterDone final : public TokenMatcher {
 public:
  explicit AfterDone(std::shared_ptr<std::vector<TokenId>> told) : told_(std::move(told)) {}
  std::int32_t n_vocab() const noexcept override { return kVocab; }
  bool allows(TokenId token) override { return !done_ || token % 10 == 0; }
  void fill(std::span<std::uint32_t> words) override {
    for (std::uint32_t& word : words) word = 0;
    for (TokenId token = 0; token < kVocab; ++token) {
      if (allows(token)) words[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
    }
  }
  void accept(TokenId token) override {
    done_ = done_ || token == kDone;
    told_->push_back(token);
  }
  void accept_text(std::string_view text) override { static_cast<void>(text); }
  void restart() override { done_ = false; }
  std::string failure() const override { return {}; }

 private:
  bool done_ = false;
  const std::shared_ptr<std::vector<TokenId>> told_;
};

struct Drawing {
  explicit Drawing(bool suspends_mask, std::int32_t n_tokens = 2)
      : mask(std::make_unique<TokenMask>(std::make_unique<AfterDone>(told))),
        budget(CompiledBudget{.starts = {{kThink}},
                              .ends = {{kDone}},
                              .forced = {7, kDone},
                              .n_tokens = n_tokens,
                              .suspends_mask = suspends_mask},
               std::make_shared<const TokenPieces>(std::vector<std::string>(kVocab, "a"))) {
    const std::vector<TokenId> prompt{0};
    sampler.reset(params, biases, nullptr, prompt);
  }

  // The token drawn where `likely` has by far the greatest logit.
  MaskedDraw draw(TokenId likely) {
    std::vector<float> logits(kVocab, 0.0F);
    logits[static_cast<std::size_t>(likely)] = 50.0F;
    return draw_token(sampler, logits.data(), mask.get(), &budget, kVocab,
                      [](TokenId token) { return token == kEos; });
  }

  // Tokens that the grammar has been told of, once its thread has seen them all: a question is
  // answered after what was told before.
  std::vector<TokenId> all_told() {
    static_cast<void>(mask->check(0));
    return *told;
  }

  std::shared_ptr<std::vector<TokenId>> told = std::make_shared<std::vector<TokenId>>();
  std::unique_ptr<TokenMask> mask;
  ReasoningBudget budget;
  SamplingParams params{};
  std::vector<LogitBias> biases;
  Sampler sampler{kVocab, 64};
};

TEST(a_grammar_that_sees_reasoning_is_told_every_token) {
  Drawing drawing(false);
  for (const TokenId likely : {kThink, 11, 12}) CHECK_EQ(drawing.draw(likely).token, likely);
  CHECK_EQ(drawing.draw(13).token, 7);  // forced, whatever is likely
  CHECK_EQ(drawing.draw(13).token, kDone);
  CHECK_EQ(drawing.draw(20).token, 20);
  const TokenId masked = drawing.draw(21).token;
  CHECK_EQ(masked % 10, 0);
  CHECK(drawing.all_told() == (std::vector<TokenId>{kThink, 11, 12, 7, kDone, 20, masked}));
}

TEST(a_suspended_grammar_is_told_the_end_of_the_reasoning_alone) {
  Drawing drawing(true);
  CHECK_EQ(drawing.draw(9).token, 9);
  for (const TokenId likely : {kThink, 11, 12}) CHECK_EQ(drawing.draw(likely).token, likely);
  CHECK_EQ(drawing.draw(13).token, 7);
  CHECK_EQ(drawing.draw(13).token, kDone);
  CHECK_EQ(drawing.draw(20).token, 20);
  CHECK(drawing.all_told() == (std::vector<TokenId>{9, kThink, kDone, 20}));
}

TEST(a_grammar_that_refuses_what_is_forced_holds) {
  Drawing drawing(false);
  CHECK_EQ(drawing.draw(kDone).token, kDone);  // the grammar holds from here on
  drawing.budget.accept(kThink);
  drawing.budget.end_reasoning();
  CHECK_EQ(drawing.draw(10).token, 10);
  CHECK_EQ(drawing.draw(20).token, 20);
  CHECK_EQ(drawing.draw(21).token % 10, 0);
  CHECK_EQ(drawing.budget.forced(), -1);
}

TEST(a_forced_token_takes_its_random_number) {
  Drawing forced(true, 1);
  Drawing free(true, -1);
  for (Drawing* drawing : {&forced, &free}) drawing->budget.accept(kThink);
  const std::vector<float> flat(kVocab, 0.0F);
  const auto draw = [&](Drawing& drawing) {
    return draw_token(drawing.sampler, flat.data(), nullptr, &drawing.budget, kVocab,
                      [](TokenId token) { return token == kEos; })
        .token;
  };
  CHECK_EQ(draw(forced), draw(free));
  CHECK_EQ(draw(forced), 7);
  CHECK_EQ(draw(forced), kDone);
  static_cast<void>(draw(free));
  static_cast<void>(draw(free));
  for (int i = 0; i < 5; ++i) CHECK_EQ(draw(forced), draw(free));
}

TEST(a_forced_token_without_a_finite_logit_is_an_error) {
  Drawing drawing(true);
  drawing.budget.accept(kThink);
  drawing.budget.end_reasoning();
  drawing.biases = {{.token = 7, .bias = -std::numeric_limits<float>::infinity()}};
  const std::vector<TokenId> prompt{0};
  drawing.sampler.reset(drawing.params, drawing.biases, nullptr, prompt);
  CHECK(drawing.draw(10).failure == FinishReason::kNonFinite);
}

}  // namespace
}  // namespace masked_draw_test
