// A sequence under an llguidance grammar.
#pragma once

#include <string_view>

#include "grammar/grammar_engine.h"
#include "token_matcher.h"

namespace unpaced {

// A message of llguidance's without the marks that it puts in place of what it leaves out.
[[nodiscard]] std::string without_marks(std::string message);

class LlguidanceMatcher final : public TokenMatcher {
 public:
  // Takes the matcher.
  LlguidanceMatcher(std::shared_ptr<const GrammarEngine> engine, LlgMatcher* matcher);
  ~LlguidanceMatcher() override;

  [[nodiscard]] std::int32_t n_vocab() const noexcept override { return engine_->n_vocab(); }
  [[nodiscard]] bool allows(TokenId token) override;
  void fill(std::span<std::uint32_t> words) override;
  void accept(TokenId token) override;
  [[nodiscard]] std::string failure() const override;

  // Text that came, whatever its tokens were.
  void accept_text(std::string_view text);

 private:
  const std::shared_ptr<const GrammarEngine> engine_;
  const LlguidanceLibrary& library_;
  LlgMatcher* const matcher_;
};

}  // namespace unpaced
