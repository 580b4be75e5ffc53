// Mirostat 1 and 2 (Basu et al., arXiv:2007.14966): draws with a controlled surprise.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/draw.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"
#include "sampling/chain/top_k.h"

namespace unpaced {

struct Mirostat {
  float tau;  // target surprise, in bits
  float eta;  // learning rate
  float mu;   // state: the surprise to cut at; starts at 2 * tau
};

namespace mirostat_detail {

inline constexpr std::int32_t kZipfTokens = 100;  // llama-server's m

// Draws from the candidates that are left and moves mu by the surprise observed.
UNPACED_HD inline std::int32_t draw(Candidates& c, Mirostat& state, Mt19937& rng) noexcept {
  softmax(c);
  const std::int32_t drawn = draw_discrete(c, rng);
  const float error = -log2_f32(c.data[drawn].p) - state.tau;
  state.mu = state.mu - state.eta * error;
  return drawn;
}

}  // namespace mirostat_detail

// Version 1's k for an estimate of Zipf's exponent.
UNPACED_HD inline std::int32_t mirostat_1_k(float s, float mu, std::int32_t n_vocab) noexcept {
  const float epsilon = s - 1.0F;
  const float numerator = epsilon * pow_f32(2.0F, mu);
  const float denominator = 1.0F - pow_f32(static_cast<float>(n_vocab), -epsilon);
  return truncate_to_i32(pow_f32(numerator / denominator, 1.0F / s));
}

// Version 1: k from an estimate of Zipf's exponent. Returns an index.
UNPACED_HD inline std::int32_t draw_mirostat_1(Candidates& c, Mirostat& state, std::int32_t n_vocab,
                                               Mt19937& rng) noexcept {
  sort_by_logit(c);
  softmax(c);
  float sum_tb = 0.0F;
  float sum_tt = 0.0F;
  for (std::int32_t i = 0; i < mirostat_detail::kZipfTokens - 1 && i < c.size - 1; ++i) {
    const float t = log_f32(static_cast<float>(i + 2) / static_cast<float>(i + 1));
    const float b = log_f32(c.data[i].p / c.data[i + 1].p);
    sum_tb += t * b;
    sum_tt += t * t;
  }
  const std::int32_t k = mirostat_1_k(sum_tb / sum_tt, state.mu, n_vocab);
  keep_top_k(c, k > 1 ? k : 1);
  return mirostat_detail::draw(c, state, rng);
}

// Version 2: cuts the candidates whose surprise is greater than mu. Returns an index.
UNPACED_HD inline std::int32_t draw_mirostat_2(Candidates& c, Mirostat& state,
                                               Mt19937& rng) noexcept {
  sort_by_logit(c);
  softmax(c);
  std::int32_t n = 0;
  while (n < c.size && !(-log2_f32(c.data[n].p) > state.mu)) ++n;
  c.size = n > 0 ? n : 1;
  return mirostat_detail::draw(c, state, rng);
}

}  // namespace unpaced
