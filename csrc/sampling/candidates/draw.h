// The last link of the chain: one candidate, by its probability. Candidates of probability 0 are
// never drawn.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"

namespace unpaced {

// Draws from the softmax of the logits, by one number of the stream even if there is no choice, and
// leaves the probabilities in p. Needs a candidate with a finite logit. The sums are double
// precision in the candidates' order. Returns an index.
UNPACED_HD inline std::int32_t draw_softmax(Candidates& c, Mt19937& rng) noexcept {
  const double u = rng.next_f64();
  if (c.size == 1) {
    c.data[0].p = 1.0F;
    return 0;
  }
  const float best = max_logit(c);
  double sum = 0.0;
  for (std::int32_t i = 0; i < c.size; ++i) {
    c.data[i].p = exp_f32(c.data[i].logit - best);
    sum += c.data[i].p;
  }
  const double target = sum * u;
  double running = 0.0;
  std::int32_t drawn = -1;
  for (std::int32_t i = 0; i < c.size; ++i) {
    if (drawn < 0) {
      running += c.data[i].p;
      if (running >= target && c.data[i].p > 0.0F) drawn = i;
    }
    c.data[i].p = static_cast<float>(c.data[i].p / sum);
  }
  return drawn;
}

// Draws by the probabilities in p, as std::discrete_distribution does: no number of the stream is
// used if there is no choice. Returns an index.
UNPACED_HD inline std::int32_t draw_discrete(const Candidates& c, Mt19937& rng) noexcept {
  if (c.size < 2) return 0;
  double sum = 0.0;
  for (std::int32_t i = 0; i < c.size; ++i) sum += c.data[i].p;
  const double u = rng.next_f64();
  double running = 0.0;
  std::int32_t drawn = 0;
  for (std::int32_t i = 0; i < c.size; ++i) {
    if (!(c.data[i].p > 0.0F)) continue;
    drawn = i;
    running += c.data[i].p / sum;
    if (running >= u) break;
  }
  return drawn;
}

}  // namespace unpaced
