// Top-n-sigma (Tang et al., arXiv:2411.07641): bans what lies more than n standard deviations below
// the best logit.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"

namespace unpaced {

// The lowest logit that stays. `logit_at(i)` gives the i-th of `size` logits; -inf does not count.
// The sums are float32 in the order given; each square is added in double precision.
template <class LogitAt>
UNPACED_HD float top_n_sigma_threshold(LogitAt logit_at, std::int32_t size, float n) noexcept {
  float best = logit_at(0);
  float sum = 0.0F;
  std::int32_t n_valid = 0;
  for (std::int32_t i = 0; i < size; ++i) {
    const float logit = logit_at(i);
    if (logit != -kInfinity) {
      best = logit > best ? logit : best;
      sum += logit;
      ++n_valid;
    }
  }
  if (n_valid == 0) return best;
  const float mean = sum / static_cast<float>(n_valid);
  float squares = 0.0F;
  for (std::int32_t i = 0; i < size; ++i) {
    const float logit = logit_at(i);
    if (logit != -kInfinity) {
      const double deviation = logit - mean;
      squares = static_cast<float>(squares + deviation * deviation);
    }
  }
  const float variance = squares / static_cast<float>(n_valid);
  const float sigma = static_cast<float>(::sqrt(static_cast<double>(variance)));
  return best - n * sigma;
}

// n <= 0: off.
UNPACED_HD inline void ban_below_n_sigma(Candidates& c, float n) noexcept {
  if (n <= 0.0F || c.size <= 1) return;
  const Candidate* data = c.data;
  const float threshold =
      top_n_sigma_threshold([data](std::int32_t i) { return data[i].logit; }, c.size, n);
  for (std::int32_t i = 0; i < c.size; ++i) {
    if (c.data[i].logit < threshold) c.data[i].logit = -kInfinity;
  }
}

}  // namespace unpaced
