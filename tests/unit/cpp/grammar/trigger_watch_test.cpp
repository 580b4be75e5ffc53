// Lazy grammars: a trigger is found wherever tokens cut it, begins the grammar with the tokens that
// it is made of, and costs the worker nothing before.
#include "grammar/trigger_watch.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "grammar/token_mask.h"

namespace trigger_watch_test {
namespace {

using unpaced::CompiledTriggers;
using unpaced::GrammarTrigger;
using unpaced::QuietSpan;
using unpaced::TokenId;
using unpaced::TokenMask;
using unpaced::TokenMatcher;
using unpaced::TokenPieces;
using unpaced::TriggerWatch;
using unpaced::WatchedText;
using Verdict = TokenMask::Verdict;

const std::vector<std::string>& pieces() {
  static const std::vector<std::string> all = {
      "a", "b", "<", "call", ">", "><", "<call>", "x<ca", "ll>y", "think", "</", "", "call>\n{"};
  return all;
}
enum : TokenId { kA, kB, kOpen, kCall, kClose, kCloseOpen, kMark, kHead, kTail, kThink, kEnd };
enum : TokenId { kNothing = 11, kMerged = 12 };

std::shared_ptr<const CompiledTriggers> plan(std::vector<GrammarTrigger> triggers,
                                             QuietSpan quiet = {}, bool may_resume = false,
                                             bool lists = true) {
  return std::make_shared<const CompiledTriggers>(std::make_shared<const TokenPieces>(pieces()),
                                                  std::move(triggers), std::move(quiet), may_resume,
                                                  lists);
}

const GrammarTrigger kWord{.token = -1, .word = "<call>", .inside = true};
const GrammarTrigger kAfterWord{.token = -1, .word = "<call>", .inside = false};
const QuietSpan kReasoning{.start = "<think>", .end = "</think>", .is_open = false};

// The token that completes a trigger, and what the grammar begins with.
struct Begun {
  int at = -1;
  std::string text;
  std::vector<TokenId> tokens;
  bool operator==(const Begun&) const = default;
};

Begun run(const std::shared_ptr<const CompiledTriggers>& waited,
          const std::vector<TokenId>& tokens) {
  TriggerWatch watch(waited);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!watch.accept(tokens[i])) continue;
    CHECK((*waited->completing_tokens())[0] >> tokens[i] & 1U);
    return {static_cast<int>(i),
            std::string(watch.text()),
            {watch.tokens().begin(), watch.tokens().end()}};
  }
  return {};
}

TEST(a_text_is_found_as_often_as_it_comes) {
  WatchedText text("aba");
  std::string found;
  for (const char c : std::string("ababaxaba")) found += text.advance(c) ? '1' : '0';
  CHECK_EQ(found, std::string("001010001"));
  WatchedText nothing("");
  CHECK(!nothing.advance('a'));
}

TEST(the_grammar_begins_with_the_tokens_of_the_word) {
  const auto waited = plan({kWord});
  CHECK(run(waited, {kA, kMark}) == (Begun{1, "", {kMark}}));
  CHECK(run(waited, {kOpen, kNothing, kCall, kClose}) == (Begun{3, "", {kOpen, kCall, kClose}}));
  CHECK(run(waited, {kOpen, kMark}) == (Begun{1, "", {kMark}}));
  // Within a token it begins with the rest of that one; what follows it there belongs to it.
  CHECK(run(waited, {kHead, kTail}) == (Begun{1, "<ca", {kTail}}));
  CHECK(run(waited, {kCloseOpen, kCall, kClose}) == (Begun{2, "<", {kCall, kClose}}));
  CHECK(run(waited, {kOpen, kMerged}) == (Begun{1, "", {kOpen, kMerged}}));
  CHECK(run(waited, {kOpen, kCall, kA, kCall, kClose}) == Begun{});
}

TEST(or_after_it) {
  const auto waited = plan({kAfterWord});
  CHECK(run(waited, {kMark, kA}) == (Begun{0, "", {}}));
  CHECK(run(waited, {kHead, kTail}) == (Begun{1, "y", {}}));
  CHECK(run(waited, {kOpen, kMerged}) == (Begun{1, "{", {}}));  // white space belongs to neither
}

TEST(a_token_is_a_trigger_wherever_it_stands) {
  CHECK(run(plan({{.token = kB}}), {kA, kB}) == (Begun{1, "", {kB}}));
  CHECK(run(plan({{.token = kB, .word = "", .inside = false}}), {kB}) == (Begun{0, "", {}}));
}

TEST(reasoning_has_no_triggers) {
  const auto waited = plan({kWord, {.token = kB}}, kReasoning);
  CHECK(run(waited, {kOpen, kThink, kClose, kMark, kB}) == Begun{});
  CHECK(run(waited, {kOpen, kThink, kClose, kMark, kEnd, kThink, kClose, kA, kMark}) ==
        (Begun{8, "", {kMark}}));
  // The tag's end and the word in one token.
  CHECK(run(waited, {kOpen, kThink, kClose, kEnd, kThink, kCloseOpen, kCall, kClose}) ==
        (Begun{7, "<", {kCall, kClose}}));
  // Reasoning may come again.
  CHECK(run(waited, {kEnd, kThink, kClose, kOpen, kThink, kClose, kMark}) == Begun{});
  QuietSpan open = kReasoning;
  open.is_open = true;
  CHECK(run(plan({kWord}, open), {kMark, kEnd, kThink, kClose, kMark}) == (Begun{4, "", {kMark}}));
  CHECK(run(plan({kWord}), {kOpen, kThink, kClose, kMark}) == (Begun{3, "", {kMark}}));
}

TEST(found_as_in_the_whole_text) {
  std::mt19937 random(5);
  const auto waited = plan({kWord});
  int n_found = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<TokenId> tokens;
    std::string text;
    int expected = -1;
    for (int j = 0; j < 12; ++j) {
      tokens.push_back(static_cast<TokenId>(random() % pieces().size()));
      text += pieces()[static_cast<std::size_t>(tokens.back())];
      if (expected < 0 && text.find("<call>") != std::string::npos) {
        expected = j;
        std::string begun = text.substr(text.find("<call>"));
        const Begun found = run(waited, tokens);
        std::string joined = found.text;
        for (const TokenId token : found.tokens) {
          joined += pieces()[static_cast<std::size_t>(token)];
        }
        CHECK_EQ(joined, begun);
      }
    }
    CHECK_EQ(run(waited, tokens).at, expected);
    n_found += expected >= 0 ? 1 : 0;
  }
  CHECK(n_found > 2'000);
}

TEST(long_words_list_every_token) {
  const auto waited = plan({{.token = -1, .word = std::string(5000, 'a')}});
  CHECK((*waited->completing_tokens())[0] == UINT32_MAX);
  CHECK(plan({kWord}, {}, false, false)->completing_tokens() == nullptr);
}

// Takes "<call>", then "a" for ever.
class CallMatcher final : public TokenMatcher {
 public:
  std::int32_t n_vocab() const noexcept override {
    return static_cast<std::int32_t>(pieces().size());
  }
  bool allows(TokenId token) override { return token == kA; }
  void fill(std::span<std::uint32_t> words) override { words[0] = 1U << kA; }
  void accept(TokenId token) override { text_ += pieces()[static_cast<std::size_t>(token)]; }
  void accept_text(std::string_view text) override { text_ += text; }
  void restart() override { text_.clear(); }
  std::string failure() const override {
    return text_.find_first_not_of('a', 6) == std::string::npos && text_.starts_with("<call>") ? ""
           : text_.empty() ? ""
                           : "no call";
  }

 private:
  std::string text_;
};

std::unique_ptr<TokenMask> mask_of(const std::shared_ptr<const CompiledTriggers>& waited) {
  return std::make_unique<TokenMask>(std::make_unique<CallMatcher>(),
                                     std::make_unique<TriggerWatch>(waited));
}

TEST(nobody_is_asked_before_the_trigger) {
  const auto mask = mask_of(plan({kWord}));
  for (int i = 0; i < 1000; ++i) {
    CHECK(mask->waits());
    CHECK(mask->check(kB) == Verdict::kAllowed);
    mask->accept(kB);
  }
  CHECK_EQ(mask->n_masks() + mask->n_checks(), 0U);
  mask->accept(kMark);
  CHECK(!mask->waits());
  CHECK(mask->check(kB) == Verdict::kDenied);
  CHECK(mask->allows(kA));
  for (int i = 0; i < 20; ++i) {
    CHECK(mask->check(kA) == Verdict::kAllowed);
    mask->accept(kA);
    CHECK(mask->check(kB) == Verdict::kDenied);
  }
}

TEST(a_trigger_that_the_grammar_cannot_go_on_from) {
  const auto fails = mask_of(plan({kWord}));
  fails->accept(kHead);
  fails->accept(kTail);
  CHECK(fails->check(kA) == Verdict::kFailed);
  CHECK_EQ(fails->failure(), std::string("no call"));

  const auto resumes = mask_of(plan({kWord}, {}, true));
  for (int i = 0; i < 3; ++i) {
    resumes->accept(kHead);
    resumes->accept(kTail);
    CHECK(resumes->check(kB) == Verdict::kAllowed);
    CHECK(resumes->waits());
    resumes->accept(kB);
  }
  resumes->accept(kMark);
  CHECK(resumes->check(kB) == Verdict::kDenied);
  CHECK(resumes->check(kA) == Verdict::kAllowed);
  resumes->accept(kA);
  CHECK(resumes->failure().empty());
}

}  // namespace
}  // namespace trigger_watch_test
