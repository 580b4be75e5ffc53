// Temperature and dynamic temperature (entropy-based).
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// What division by a temperature does to logits whose best is `best`. temperature <= 0 leaves only
// the first best. Where llama.cpp's logits overflow (temperature near 0) its draw is arbitrary; the
// limit, the best token, is taken instead. At +inf every logit would be 0, but -inf must stay. NaN
// (a dynamic temperature that overflowed) leaves the logits alone.
struct TemperatureScale {
  float divisor;
  bool greedy;
};

UNPACED_HD inline TemperatureScale temperature_scale(float temperature, float best) noexcept {
  if (temperature <= 0.0F) return {1.0F, true};
  if (temperature != temperature) return {1.0F, false};
  const float divisor = temperature > kMaxFloat ? kMaxFloat : temperature;
  const float scaled = best / divisor;
  return {divisor, scaled > kMaxFloat || scaled < -kMaxFloat};
}

UNPACED_HD inline void apply_temperature(Candidates& c, float temperature) noexcept {
  if (c.size == 0) return;
  const float best = max_logit(c);
  const TemperatureScale scale = temperature_scale(temperature, best);
  if (!scale.greedy) {
    for (std::int32_t i = 0; i < c.size; ++i) c.data[i].logit /= scale.divisor;
    return;
  }
  bool found = false;
  for (std::int32_t i = 0; i < c.size; ++i) {
    const bool first_best = !found && c.data[i].logit == best;
    found = found || first_best;
    if (!first_best) c.data[i].logit = -kInfinity;
  }
}

// range <= 0: plain temperature, where 1 is off. Otherwise the temperature lies within `range` of
// it, by the normalised entropy to the power of `exponent`; sorts the candidates.
UNPACED_HD inline void apply_dynamic_temperature(Candidates& c, float temperature, float range,
                                                 float exponent) noexcept {
  if (!(range > 0.0F)) {
    if (temperature != 1.0F) apply_temperature(c, temperature);
    return;
  }
  if (c.size <= 1) return;
  const float low = temperature - range > 0.0F ? temperature - range : 0.0F;
  const float high = temperature + range;
  const float max_entropy = -log_f32(1.0F / static_cast<float>(c.size));
  sort_by_logit(c);
  softmax(c);
  float entropy = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    if (c.data[i].p > 0.0F) entropy -= c.data[i].p * log_f32(c.data[i].p);
  }
  apply_temperature(c, low + (high - low) * pow_f32(entropy / max_entropy, exponent));
}

}  // namespace unpaced
