// Softmax over the candidates, with llama.cpp's float32 sums: they depend on the candidates' order.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"

namespace unpaced {

// Needs at least one candidate.
UNPACED_HD inline float max_logit(const Candidates& c) noexcept {
  float best = c.data[0].logit;
  if (c.sorted) return best;
  for (std::int32_t i = 1; i < c.size; ++i) {
    if (c.data[i].logit > best) best = c.data[i].logit;
  }
  return best;
}

// Fills p. Needs at least one candidate with a finite logit. Returns the sum that p was divided by.
UNPACED_HD inline float softmax(Candidates& c) noexcept {
  const float best = max_logit(c);
  float sum = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    c.data[i].p = exp_f32(c.data[i].logit - best);
    sum += c.data[i].p;
  }
  for (std::int32_t i = 0; i < c.size; ++i) c.data[i].p /= sum;
  return sum;
}

}  // namespace unpaced
