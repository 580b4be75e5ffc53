// Drawing under a grammar: first as if there were none, then, if the grammar refuses the token,
// from what it allows. A reasoning budget that is used up comes before both.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:452-492 and :631-680.
#pragma once

#include <span>

#include "grammar/token_mask.h"
#include "request/reasoning_budget.h"
#include "request/records.h"
#include "sampling/sampler.h"

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

template <typename IsEog>
MaskedDraw draw_token(Sampler& sampler, const float* logits, TokenMask* mask,
                      ReasoningBudget* budget, std::int32_t n_vocab, IsEog&& is_eog);

// Reasoning that the grammar was not told of has ended. The grammar is told the tag that ended it,
// which may be what the grammar begins with. Not kNone: it refuses the tag, and the request ends.
inline FinishReason resume_mask(TokenMask& mask, std::span<const TokenId> end_tag) {
  for (const TokenId token : end_tag) {
    const TokenMask::Verdict verdict = mask.check(token);
    if (verdict == TokenMask::Verdict::kFailed) return FinishReason::kGrammarFailed;
    if (verdict == TokenMask::Verdict::kDenied) return FinishReason::kGrammarDeadEnd;
    mask.accept(token);
  }
  return FinishReason::kNone;
}

// A token drawn as if there were no grammar. A forced one, of a budget that is used up, is drawn
// like any other, so that it takes its random number.
struct FirstDraw {
  TokenId token = -1;
  bool is_masked = false;  // the mask is to be asked about it
  bool is_forced = false;
};

// `mask` null: no grammar; `budget` null: no limit to reasoning. The token is -1 where the logits
// are not finite or ban everything. Drawing thread only, as all below.
inline FirstDraw first_draw(Sampler& sampler, const float* logits, const TokenMask* mask,
                            ReasoningBudget* budget) {
  const TokenId forced = budget == nullptr ? -1 : budget->forced();
  const SampleResult drawn =
      forced < 0 ? sampler.sample(logits) : sampler.sample(logits, budget->forced_mask());
  if (drawn.status != SampleStatus::kOk || (forced >= 0 && drawn.token != forced)) return {};
  return {.token = drawn.token,
          .is_masked = mask != nullptr && (budget == nullptr || !budget->suspends_mask()),
          .is_forced = forced >= 0};
}

// What follows from the mask's verdict on the first draw (kAllowed where it is not asked). Accepts
// the token in the mask and the budget, not in the sampler. Where the grammar refuses a forced
// token, the grammar holds.
template <typename IsEog>
MaskedDraw second_draw(Sampler& sampler, const float* logits, TokenMask* mask,
                       ReasoningBudget* budget, const FirstDraw& first, TokenMask::Verdict verdict,
                       std::int32_t n_vocab, IsEog&& is_eog) {
  SampleResult drawn{.token = first.token, .status = SampleStatus::kOk};
  if (verdict == TokenMask::Verdict::kFailed) return {.failure = FinishReason::kGrammarFailed};
  if (mask != nullptr && verdict == TokenMask::Verdict::kDenied) {
    if (first.is_forced) {
      // The grammar knows better than the budget: the tag was part of a string, perhaps.
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
  if (mask != nullptr && first.is_masked) mask->accept(drawn.token);
  if (budget != nullptr) {
    budget->accept(drawn.token);
    if (mask != nullptr && !first.is_masked && !budget->suspends_mask()) {
      const FinishReason failure = resume_mask(*mask, budget->end_tag());
      if (failure != FinishReason::kNone) return {.failure = failure};
    }
  }
  return {.token = drawn.token};
}

// Both, and between them the wait for the mask.
template <typename IsEog>
MaskedDraw draw_token(Sampler& sampler, const float* logits, TokenMask* mask,
                      ReasoningBudget* budget, std::int32_t n_vocab, IsEog&& is_eog) {
  const FirstDraw first = first_draw(sampler, logits, mask, budget);
  if (first.token < 0) return {.failure = FinishReason::kNonFinite};
  TokenMask::Verdict verdict = TokenMask::Verdict::kAllowed;
  if (mask != nullptr && first.is_masked) verdict = mask->check(first.token);
  return second_draw(sampler, logits, mask, budget, first, verdict, n_vocab, is_eog);
}

}  // namespace unpaced
