// Seeded requests and rows for chains of top-p, min-p and temperature on the whole row or many of
// its best, where the cuts and the draw are to be certain, or not to be.
#pragma once

#include "random_chain.h"
#include "sampling/sampler.h"

namespace unpaced::test {

// Of the row that nearly_hit() makes.
constexpr float kHitTemperature = 0.2F;
constexpr float kHitMinP = 0.018F;

inline RequestSpec nucleus_request(Random& random, std::int32_t n_vocab) {
  RequestSpec spec;
  spec.sampling = all_off(random());
  SamplingParams& p = spec.sampling;
  p.top_p = pick(random, {0.1F, 0.5F, 0.8F, 0.95F, 0.95F, 0.999F});
  p.min_p = pick(random, {0.0F, 0.0001F, 0.01F, 0.05F, 0.05F, 0.3F, 1.0F});
  p.temperature = pick(random, {0.1F, 0.5F, 0.8F, 0.8F, 1.0F, 1.5F});
  p.min_keep = pick(random, {0, 0, 0, 1, 3, 50});
  if (chance(random, 0.2)) {
    p.top_p = 0.95F, p.min_p = kHitMinP, p.temperature = kHitTemperature, p.min_keep = 0;
  }
  if (chance(random, 0.3)) p.top_k = pick(random, {129, 200, 1000, 1024});
  if (chance(random, 0.2)) p.repeat_penalty = 1.1F;
  spec.prompt.resize(20);
  for (TokenId& token : spec.prompt) token = below(random, n_vocab);
  if (chance(random, 0.2)) spec.logit_bias.push_back({below(random, n_vocab), 7.0F});
  if (chance(random, 0.2)) spec.n_probs = 3, spec.want_logprob = true;
  return spec;
}

// Logits of likely tokens, of which the first few are hit by numbers up to almost exactly u, and of
// too many unlikely ones for top-p to cut anything.
inline std::vector<float> nearly_hit(Random& random, std::int32_t n_vocab, double u) {
  constexpr float kFirst = 3.0F;
  constexpr std::size_t kMaxLikely = 600;
  std::vector<float> likely(3, 0.0F);
  double rest = kFirst * (1.0 - u) / u;
  while (rest > 1e-16 && likely.size() < kMaxLikely) {
    float logit = rest > 0.8 ? -0.05F : static_cast<float>(std::log(rest)) * kHitTemperature;
    while (std::exp(logit / kHitTemperature) > rest) logit = std::nextafter(logit, -9.0F);
    if (logit < std::log(kHitMinP)) break;
    likely.push_back(logit);
    rest -= std::exp(logit / kHitTemperature);
  }
  likely.resize(static_cast<std::size_t>(n_vocab), -4.5F);
  std::shuffle(likely.begin(), likely.end(), random);
  return likely;
}

// u: the number that the draw will take.
inline std::vector<float> nucleus_row(Random& random, std::int32_t n_vocab, const RequestSpec& spec,
                                      double u) {
  const SamplingParams& p = spec.sampling;
  if (p.temperature == kHitTemperature && n_vocab >= 700 && chance(random, 0.7)) {
    return nearly_hit(random, n_vocab, u);
  }
  std::vector<float> row(static_cast<std::size_t>(n_vocab));
  std::normal_distribution<float> normal(0.0F, pick(random, {0.1F, 0.3F, 1.0F, 1.0F, 3.0F}));
  for (float& x : row) x = normal(random);
  const auto some = [&] { return static_cast<std::size_t>(below(random, n_vocab)); };
  switch (below(random, 8)) {
    case 0:  // a handful of likely tokens
      for (int i = 0; i < 6; ++i) row[some()] += 18.0F;
      break;
    case 1:  // equally likely ones, so that p is reached within the float sums' roundings
      std::fill(row.begin(), row.end(), pick(random, {-60.0F, -20.0F}));
      for (int i = pick(random, {2, 10, 20, 40, 200}); i > 0; --i) row[some()] = 0.0F;
      break;
    case 2:  // two levels
      for (float& x : row) x = chance(random, 0.01) ? 0.0F : -2.5F;
      break;
    case 3:  // ties everywhere
      for (float& x : row) x = std::round(x * 8.0F) / 8.0F;
      break;
    case 4:  // ties where min-p cuts, and just below
      if (p.min_p > 0.0F) {
        const float cut = *std::max_element(row.begin(), row.end()) + std::log(p.min_p);
        for (int i = 0; i < 20; ++i) row[some()] = i % 2 == 0 ? cut : std::nextafter(cut, -99.0F);
      }
      break;
    case 5:  // hardly any legal one, or one that is not
      for (float& x : row) x = chance(random, 0.9) ? -INFINITY : x;
      if (chance(random, 0.1)) row[some()] = pick(random, {INFINITY, NAN});
      break;
    case 6:
      std::fill(row.begin(), row.end(), pick(random, {0.0F, -1.0F, -INFINITY}));
      break;
    default:
      break;
  }
  return row;
}

}  // namespace unpaced::test
