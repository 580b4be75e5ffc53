// Drawing under a grammar: first as if there were none, then, if the grammar refuses the token,
// from what it allows. Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:640-680.
#pragma once

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

// `mask` null: no grammar. Accepts the token in the mask, not in the sampler. Drawing thread only.
template <typename IsEog>
MaskedDraw draw_token(Sampler& sampler, const float* logits, TokenMask* mask, std::int32_t n_vocab,
                      IsEog&& is_eog) {
  SampleResult drawn = sampler.sample(logits);
  if (drawn.status != SampleStatus::kOk) return {.failure = FinishReason::kNonFinite};
  if (mask == nullptr) return {.token = drawn.token};
  const TokenMask::Verdict verdict = mask->check(drawn.token);
  if (verdict == TokenMask::Verdict::kFailed) return {.failure = FinishReason::kGrammarFailed};
  if (verdict == TokenMask::Verdict::kDenied) {
    drawn = sampler.sample(logits, mask->words());
    if (drawn.status != SampleStatus::kOk || !mask->allows(drawn.token)) {
      // All that the grammar allows is banned, by a bias or by ignore_eos.
      return {.failure = may_end(*mask, n_vocab, is_eog) ? FinishReason::kGrammarEnd
                                                         : FinishReason::kGrammarDeadEnd};
    }
  }
  mask->accept(drawn.token);
  return {.token = drawn.token};
}

}  // namespace unpaced
