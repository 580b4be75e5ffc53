// ReasoningBudget: what counts, what is forced, and what ends or begins reasoning.
#include "request/reasoning_budget.h"

#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "check.h"

namespace reasoning_budget_test {
namespace {

using unpaced::CompiledBudget;
using unpaced::ReasoningBudget;
using unpaced::TokenId;
using unpaced::TokenPieces;
using unpaced::TokenSequences;
using State = ReasoningBudget::State;
using Tokens = std::vector<TokenId>;

// All tokens but these are letters.
constexpr TokenId kC3 = 90;
constexpr TokenId kA9 = 91;
constexpr TokenId kE2 = 92;
constexpr TokenId kControl = 95;  // no text
constexpr TokenId kVocab = 100;   // not a multiple of 32
const Tokens kStart{10, 11};
const Tokens kEnd{20, 21, 22};
const Tokens kOtherEnd{30};

std::shared_ptr<const TokenPieces> pieces() {
  std::vector<std::string> texts(kVocab, "a");
  texts[kC3] = "\xc3";
  texts[kA9] = "\xa9";
  texts[kE2] = "x\xe2\x82";
  texts[kControl] = "";
  return std::make_shared<const TokenPieces>(texts);
}

CompiledBudget plan(std::int32_t n_tokens, const Tokens& message = {}) {
  Tokens forced = message;
  forced.insert(forced.end(), kEnd.begin(), kEnd.end());
  return {.starts = {kStart}, .ends = {kEnd, kOtherEnd}, .forced = forced, .n_tokens = n_tokens};
}

void accept(ReasoningBudget& budget, const Tokens& tokens) {
  for (const TokenId token : tokens) {
    CHECK_EQ(budget.forced(), -1);
    budget.accept(token);
  }
}

// The tokens that are forced from here on.
Tokens forced_run(ReasoningBudget& budget) {
  Tokens run;
  for (TokenId token = budget.forced(); token >= 0; token = budget.forced()) {
    std::int32_t n_bits = 0;
    for (TokenId i = 0; i < kVocab; ++i) {
      const auto bit = static_cast<std::uint32_t>(i);
      if ((budget.forced_mask()[bit / 32] >> (bit % 32) & 1U) == 0) continue;
      ++n_bits;
      CHECK_EQ(i, token);
    }
    CHECK_EQ(n_bits, 1);
    budget.accept(token);
    run.push_back(token);
    REQUIRE(run.size() < 50);
  }
  return run;
}

TEST(reasoning_of_as_many_tokens_as_allowed_then_the_end_is_forced) {
  ReasoningBudget budget(plan(3, {1, 2}), pieces());
  accept(budget, {5, 10, 5});  // half a tag is none
  CHECK(budget.state() == State::kIdle);
  accept(budget, kStart);
  CHECK(budget.state() == State::kCounting);
  accept(budget, {5, 6, 7});
  CHECK(budget.state() == State::kForcing);
  CHECK(forced_run(budget) == (Tokens{1, 2, 20, 21, 22}));
  CHECK(budget.state() == State::kDone);
  const auto tag = budget.end_tag();
  CHECK(Tokens(tag.begin(), tag.end()) == kEnd);
  accept(budget, {5, 6, 7, 8, 9});
}

TEST(no_budget_at_all_forces_right_after_the_tag) {
  ReasoningBudget budget(plan(0), pieces());
  accept(budget, kStart);
  CHECK(forced_run(budget) == kEnd);
}

TEST(an_end_of_the_models_own_leaves_it_free) {
  for (const Tokens& end : {kEnd, kOtherEnd}) {
    ReasoningBudget budget(plan(5), pieces());
    accept(budget, kStart);
    accept(budget, {5});
    accept(budget, end);
    CHECK(budget.state() == State::kDone);
    const auto tag = budget.end_tag();
    CHECK(Tokens(tag.begin(), tag.end()) == end);
    accept(budget, {5, 5, 5, 5, 5, 5, 5});
  }
}

TEST(the_tokens_of_an_unfinished_end_count_and_come_again) {
  ReasoningBudget budget(plan(2), pieces());
  accept(budget, kStart);
  accept(budget, {20, 21});
  CHECK(forced_run(budget) == kEnd);
  CHECK(budget.state() == State::kDone);
}

TEST(each_thought_has_the_whole_budget) {
  ReasoningBudget budget(plan(2), pieces());
  for (int i = 0; i < 3; ++i) {
    accept(budget, kStart);
    CHECK(budget.end_tag().empty());
    accept(budget, {5, 5});
    CHECK(forced_run(budget) == kEnd);
    accept(budget, {5, 5, 5, 10, 5});
  }
}

TEST(a_character_is_not_cut) {
  ReasoningBudget budget(plan(1), pieces());
  accept(budget, kStart);
  accept(budget, {kC3});
  CHECK(budget.state() == State::kWaitingUtf8);
  // A byte that continues a character does not tell whether it is the last one.
  accept(budget, {kA9, kE2, kA9});
  CHECK(budget.state() == State::kWaitingUtf8);
  accept(budget, {kControl});
  CHECK(forced_run(budget) == kEnd);
}

TEST(an_end_while_a_character_is_waited_for_counts) {
  ReasoningBudget budget(plan(1), pieces());
  accept(budget, kStart);
  accept(budget, {kE2, 30});
  CHECK(budget.state() == State::kDone);
  accept(budget, {5, 5});
}

TEST(what_the_prompt_has_begun_counts_but_is_never_what_is_forced) {
  ReasoningBudget opened(plan(3), pieces());
  for (const TokenId token : {10, 11, 5, 5}) opened.accept_prompt(token);
  CHECK(opened.state() == State::kCounting);
  accept(opened, {5});
  CHECK(forced_run(opened) == kEnd);

  ReasoningBudget used_up(plan(0, {1}), pieces());
  for (const TokenId token : {10, 11, 5, 5, 20, 5}) used_up.accept_prompt(token);
  CHECK(forced_run(used_up) == (Tokens{1, 20, 21, 22}));

  ReasoningBudget closed(plan(0, {1}), pieces());
  for (const TokenId token : {10, 11, 5, 20, 21, 22, 5}) closed.accept_prompt(token);
  CHECK(closed.state() == State::kDone);
  accept(closed, {5, 5});
}

TEST(reasoning_is_ended_from_outside_only_while_it_lasts) {
  ReasoningBudget budget(plan(-1, {1}), pieces());
  budget.end_reasoning();
  accept(budget, {5});  // asked too early: forgotten
  accept(budget, kStart);
  accept(budget, Tokens(1000, 5));
  budget.end_reasoning();
  CHECK(forced_run(budget) == (Tokens{1, 20, 21, 22}));
  budget.end_reasoning();
  accept(budget, {5, 5});
  accept(budget, kStart);
  accept(budget, {5, 5});
}

TEST(asking_twice_while_forcing_does_not_begin_again) {
  ReasoningBudget budget(plan(-1, {1}), pieces());
  accept(budget, kStart);
  budget.end_reasoning();
  CHECK_EQ(budget.forced(), 1);
  budget.accept(1);
  budget.end_reasoning();
  CHECK(forced_run(budget) == kEnd);
}

TEST(another_thread_may_ask) {
  ReasoningBudget budget(plan(-1), pieces());
  accept(budget, kStart);
  std::thread asker([&] { budget.end_reasoning(); });
  while (budget.forced() < 0) budget.accept(5);
  asker.join();
  CHECK(forced_run(budget) == kEnd);
}

TEST(a_grammar_that_does_not_see_reasoning_is_suspended_during_it) {
  CompiledBudget suspending = plan(2);
  suspending.suspends_mask = true;
  ReasoningBudget budget(suspending, pieces());
  accept(budget, {5});
  CHECK(!budget.suspends_mask());
  accept(budget, kStart);
  CHECK(budget.suspends_mask());
  accept(budget, {5, kC3});
  CHECK(budget.suspends_mask());
  accept(budget, {5});
  CHECK_EQ(budget.forced(), 20);
  CHECK(budget.suspends_mask());
  static_cast<void>(forced_run(budget));
  CHECK(!budget.suspends_mask());
}

// Beside the whole text: the longest sequence that ends here and begins after the last one found.
TEST(sequences_are_found_as_in_the_whole_text) {
  std::mt19937 rng(7);
  const auto below = [&](std::uint32_t n) { return static_cast<TokenId>(rng() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Tokens> sequences(1 + rng() % 4);
    for (Tokens& sequence : sequences) {
      sequence.resize(rng() % 5);
      for (TokenId& token : sequence) token = below(3);
    }
    TokenSequences watched(sequences);
    Tokens text;
    for (int i = 0; i < 60; ++i) {
      text.push_back(below(3));
      std::size_t longest = 0;
      for (const Tokens& sequence : sequences) {
        if (sequence.size() > text.size() || sequence.empty()) continue;
        if (std::equal(sequence.rbegin(), sequence.rend(), text.rbegin())) {
          longest = std::max(longest, sequence.size());
        }
      }
      const std::int32_t found = watched.advance(text.back());
      CHECK_EQ(found < 0 ? 0U : watched.at(found).size(), longest);
      if (longest > 0) text.clear();
    }
  }
}

}  // namespace
}  // namespace reasoning_budget_test
