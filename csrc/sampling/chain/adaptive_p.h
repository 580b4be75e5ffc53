// Adaptive-p (https://github.com/ggml-org/llama.cpp/pull/17927): draws tokens whose probabilities
// average a target.
#pragma once

#include <cmath>
#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/draw.h"
#include "sampling/candidates/softmax.h"

namespace unpaced {

// Moving sums over the probabilities that accepted tokens had before the transform.
class AdaptiveP {
 public:
  // target: below 0 leaves the distribution as it is. decay: in [0, 0.99].
  void reset(float target, float decay) noexcept {
    target_ = target;
    decay_ = decay;
    weighted_sum_ = target / (1.0F - decay);
    total_weight_ = 1.0F / (1.0F - decay);
    pending_ = -1;
  }

  // Draws by the transformed probabilities, which are left in p. Returns an index.
  std::int32_t draw(Candidates& c, Mt19937& rng) noexcept {
    softmax(c);
    if (target_ < 0.0F) return draw_discrete(c, rng);
    const float target = clamp_01(target_);
    const float wanted =
        total_weight_ == 0.0F ? target : clamp_01(2.0F * target - weighted_sum_ / total_weight_);
    for (std::int32_t i = 0; i < c.size; ++i) {
      Candidate& candidate = c.data[i];
      c.scratch[i].p = candidate.p;
      if (candidate.logit > -kInfinity) candidate.logit = transformed(candidate.p, wanted);
    }
    softmax(c);  // like llama.cpp's, around the first logit if the list was sorted before
    c.sorted = false;
    const std::int32_t drawn = draw_discrete(c, rng);
    pending_ = c.data[drawn].token;
    pending_p_ = c.scratch[drawn].p;
    return drawn;
  }

  // Moves the sums if the token is the one drawn last.
  void accept(TokenId token) noexcept {
    if (token == pending_) {
      weighted_sum_ = pending_p_ + decay_ * weighted_sum_;
      total_weight_ = 1.0F + decay_ * total_weight_;
    }
    pending_ = -1;
  }

 private:
  static float clamp_01(float x) noexcept { return x < 0.0F ? 0.0F : x > 1.0F ? 1.0F : x; }

  // Quadratic near the wanted probability, linear far from it.
  static float transformed(float p, float wanted) noexcept {
    constexpr float kPeak = 5.0F;
    constexpr float kSharpness = 10.0F;
    constexpr float kInverseWidth = 1.0F / 0.3F;
    const float distance = std::fabs((p - wanted) * kInverseWidth);
    return kPeak - kSharpness * distance * distance / (1.0F + distance);
  }

  float target_ = -1.0F;
  float decay_ = 0.9F;
  float weighted_sum_ = 0.0F;
  float total_weight_ = 0.0F;
  float pending_p_ = 0.0F;
  TokenId pending_ = -1;  // drawn, and not accepted yet
};

}  // namespace unpaced
