// A lazy grammar: everything is allowed until a trigger comes.
#pragma once

#include <string>
#include <vector>

#include "grammar/llguidance_matcher.h"

namespace unpaced {

class TriggeredMatcher final : public TokenMatcher {
 public:
  TriggeredMatcher(std::shared_ptr<const GrammarEngine> engine,
                   std::unique_ptr<LlguidanceMatcher> grammar,
                   std::vector<GrammarTrigger> triggers);

  [[nodiscard]] std::int32_t n_vocab() const noexcept override { return engine_->n_vocab(); }
  [[nodiscard]] bool allows(TokenId token) override { return waits_ || grammar_->allows(token); }
  void fill(std::span<std::uint32_t> words) override;
  void accept(TokenId token) override;
  [[nodiscard]] std::string failure() const override { return grammar_->failure(); }

 private:
  const std::shared_ptr<const GrammarEngine> engine_;
  const std::unique_ptr<LlguidanceMatcher> grammar_;
  const std::vector<GrammarTrigger> triggers_;
  std::size_t longest_ = 0;  // bytes of a trigger's word
  bool waits_ = true;
  std::string tail_;  // end of the text so far, enough for the longest word
};

}  // namespace unpaced
