#include "triggered_matcher.h"

#include <algorithm>

namespace unpaced {

TriggeredMatcher::TriggeredMatcher(std::shared_ptr<const GrammarEngine> engine,
                                   std::unique_ptr<LlguidanceMatcher> grammar,
                                   std::vector<GrammarTrigger> triggers)
    : engine_(std::move(engine)), grammar_(std::move(grammar)), triggers_(std::move(triggers)) {
  for (const GrammarTrigger& trigger : triggers_)
    longest_ = std::max(longest_, trigger.word.size());
}

void TriggeredMatcher::fill(std::span<std::uint32_t> words) {
  if (!waits_) return grammar_->fill(words);
  std::fill(words.begin(), words.end(), UINT32_MAX);
  const auto n_last = static_cast<std::uint32_t>(n_vocab()) % 32;
  if (n_last != 0) words.back() = (1U << n_last) - 1U;
}

void TriggeredMatcher::accept(TokenId token) {
  if (!waits_) return grammar_->accept(token);
  for (const GrammarTrigger& trigger : triggers_) {
    if (trigger.token != token) continue;
    waits_ = false;
    if (trigger.inside) grammar_->accept(token);
    return;
  }
  const std::string& piece = engine_->piece(token);
  tail_ += piece;
  std::size_t first = std::string::npos;
  const GrammarTrigger* found = nullptr;
  for (const GrammarTrigger& trigger : triggers_) {
    if (trigger.word.empty()) continue;
    const std::size_t at = tail_.find(trigger.word);
    if (at < first) {
      first = at;
      found = &trigger;
    }
  }
  if (found != nullptr) {
    waits_ = false;
    const std::size_t begin = found->inside ? first : first + found->word.size();
    // A token that is the trigger, a control token perhaps, is given as the token that it is.
    if (found->inside && tail_.size() - piece.size() == first) {
      grammar_->accept(token);
    } else if (begin < tail_.size()) {
      grammar_->accept_text(std::string_view(tail_).substr(begin));
    }
    return;
  }
  // A word may have begun at the end of what was seen.
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - longest_ + (longest_ == 0 ? 0 : 1));
}

}  // namespace unpaced
