// Logarithms of the probabilities before sampling: the plain softmax of the model's logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"
#include "sampling/candidates/candidates.h"
#include "sampling/row/logit_row.h"

namespace unpaced {

// Takes all its memory in the constructor. One thread.
class TopLogprobs {
 public:
  explicit TopLogprobs(std::int32_t n_vocab);

  // The n best tokens and their natural logarithms of probability, descending, equal ones by token.
  // logits: n_vocab of them; they must stay while logprob() is used. Empty if n <= 0 or if a logit
  // is NaN or +inf or none is finite (logprob() is NaN then).
  std::span<const TokenLogprob> compute(const float* logits, std::int32_t n) noexcept;

  // Of any token in [0, n_vocab), after compute().
  float logprob(TokenId token) const noexcept;

 private:
  LogitRow row_;
  const float* logits_ = nullptr;
  double log_sum_ = 0.0;  // logarithm of the sum of exp(logit)
  std::vector<Candidate> candidates_;
  std::vector<Candidate> scratch_;
  std::vector<TokenLogprob> best_;
};

}  // namespace unpaced
