// Locally typical sampling (Meister et al., arXiv:2202.00666): candidates whose surprise is closest
// to the entropy, until their probabilities sum to more than p.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/introsort.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// p >= 1: off. Leaves the candidates in ascending order of |surprise - entropy|, which counts as
// unsorted. A candidate of probability 0 makes the entropy NaN and every score equal, as in
// llama.cpp.
UNPACED_HD inline void keep_typical_p(Candidates& c, float p, std::int32_t min_keep) noexcept {
  if (p >= 1.0F) return;
  sort_by_logit(c);
  const float best = max_logit(c);
  const float sum = softmax(c);
  float entropy = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    const float surprise = -log_f32(c.data[i].p);
    c.scratch[i] = {c.data[i].token, c.data[i].logit, surprise};
    entropy += c.data[i].p * surprise;
  }
  for (std::int32_t i = 0; i < c.size; ++i) {
    const float distance = c.scratch[i].p - entropy;
    c.scratch[i].p = distance < 0.0F ? -distance : distance;
  }
  introsort(c.scratch, c.size, [](const Candidate& a, const Candidate& b) { return a.p < b.p; });
  float cumulative = 0.0F;
  std::int32_t n = 0;
  while (n < c.size) {
    Candidate kept = c.scratch[n];
    kept.p = exp_f32(kept.logit - best) / sum;
    c.data[n++] = kept;
    cumulative += kept.p;
    if (cumulative > p && n >= min_keep) break;
  }
  c.size = n;
  c.sorted = false;
  c.by_token = false;
}

}  // namespace unpaced
