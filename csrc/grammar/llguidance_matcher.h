// A sequence under an llguidance grammar.
#pragma once

#include <string_view>

#include "grammar/grammar_engine.h"
#include "grammar/token_matcher.h"

namespace unpaced {

// A message of llguidance's without the marks that it puts in place of what it leaves out.
[[nodiscard]] std::string without_marks(std::string message);

class LlguidanceMatcher final : public TokenMatcher {
 public:
  explicit LlguidanceMatcher(std::shared_ptr<const Grammar> grammar);
  ~LlguidanceMatcher() override;

  [[nodiscard]] std::int32_t n_vocab() const noexcept override { return engine_->n_vocab(); }
  [[nodiscard]] bool allows(TokenId token) override;
  [[nodiscard]] bool has_mask() override;
  void fill(std::span<std::uint32_t> words) override;
  void accept(TokenId token) override;
  void accept_text(std::string_view text) override;
  void restart() override;
  [[nodiscard]] std::string failure() const override;

 private:
  const std::shared_ptr<const Grammar> grammar_;
  const GrammarEngine* const engine_;
  const LlguidanceLibrary& library_;
  LlgMatcher* matcher_;
  MaskMemory* const memory_;  // null: none
  MaskMemory::Mark mark_;     // where the text is
};

}  // namespace unpaced
