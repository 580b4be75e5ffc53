// Drawing under a grammar: first as if there were none, then, if the grammar refuses the token,
// from what it allows. A reasoning budget that is used up comes before both.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:452-492 and :631-680.
#pragma once

#include <span>

#include "reasoning_budget.h"
#include "records.h"
#include "sampling/sampler.h"
#include "token_mask.h"

namespace unpaced {

struct MaskedDraw {
  TokenId token = -1;
  FinishReason failure = FinishReason::kNone;  // not kNone: there is no token, the request ends
};

// True if a token that ends the text is in the mask. `is_eog`: of a TokenId.
template <typename IsEog>
bool may_end(const TokenMask& mask, std::int32_t n_vocab, IsEog&& is_eog) {
  for (TokenId token = 0; token < n_vocab; ++token) {
    if (mask.allows(token) && is_eog(token)) return true;
  }
  return false;
}

// Thoughts that the grammar was not told of have ended: it is told the tag that ended them, which
// may be what it begins with. Not kNone: it does not take it, and the request ends.
inline FinishReason resume_mask(TokenMask& mask, std::span<const TokenId> end_tag) {
  for (const TokenId token : end_tag) {
    const TokenMask::Verdict verdict = mask.check(token);
    if (verdict == TokenMask::Verdict::kFailed) return FinishReason::kGrammarFailed;
    if (verdict == TokenMask::Verdict::kDenied) return FinishReason::kGrammarDeadEnd;
    mask.accept(token);
  }
  return FinishReason::kNone;
}

// `mask` null: no grammar; `budget` null: no limit to thoughts. Accepts the token in both, not in
// the sampler. A forced token is drawn like any other, so that it takes its random number; where
// the grammar refuses it, the grammar holds. Drawing thread only.
template <typename IsEog>
MaskedDraw draw_token(Sampler& sampler, const float* logits, TokenMask* mask,
                      ReasoningBudget* budget, std::int32_t n_vocab, IsEog&& is_eog) {
  const TokenId forced = budget == nullptr ? -1 : budget->forced();
  const bool is_masked = mask != nullptr && (budget == nullptr || !budget->suspends_mask());
  SampleResult drawn =
      forced < 0 ? sampler.sample(logits) : sampler.sample(logits, budget->forced_mask());
  if (drawn.status != SampleStatus::kOk || (forced >= 0 && drawn.token != forced)) {
    return {.failure = FinishReason::kNonFinite};
  }
  if (is_masked) {
    const TokenMask::Verdict verdict = mask->check(drawn.token);
    if (verdict == TokenMask::Verdict::kFailed) return {.failure = FinishReason::kGrammarFailed};
    if (verdict == TokenMask::Verdict::kDenied) {
      if (forced >= 0) {
        // What the budget took for thoughts is none to the grammar, a tag in a string perhaps.
        budget->give_up();
        return draw_token(sampler, logits, mask, budget, n_vocab, is_eog);
      }
      drawn = sampler.sample(logits, mask->words());
      if (drawn.status != SampleStatus::kOk || !mask->allows(drawn.token)) {
        // All that the grammar allows is banned, by a bias or by ignore_eos.
        return {.failure = may_end(*mask, n_vocab, is_eog) ? FinishReason::kGrammarEnd
                                                           : FinishReason::kGrammarDeadEnd};
      }
    }
    mask->accept(drawn.token);
  }
  if (budget != nullptr) {
    budget->accept(drawn.token);
    if (mask != nullptr && !is_masked && !budget->suspends_mask()) {
      const FinishReason failure = resume_mask(*mask, budget->end_tag());
      if (failure != FinishReason::kNone) return {.failure = failure};
    }
  }
  return {.token = drawn.token};
}

}  // namespace unpaced
