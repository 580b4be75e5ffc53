// Seeded random requests and rows of logits for the tests of the device's sampling.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "request/request.h"

namespace unpaced::test {

using Random = std::mt19937;

inline std::int32_t below(Random& random, std::int32_t n) {
  return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n));
}

template <class T>
T pick(Random& random, std::initializer_list<T> values) {
  return values.begin()[below(random, static_cast<std::int32_t>(values.size()))];
}

inline bool chance(Random& random, double p) {
  return std::uniform_real_distribution<double>(0.0, 1.0)(random) < p;
}

inline const char* name_of(SamplerKind kind) {
  constexpr const char* kNames[] = {"penalties", "dry",   "sigma", "top_k",      "typical",
                                    "top_p",     "min_p", "xtc",   "temperature"};
  return kNames[static_cast<std::size_t>(kind)];
}

// Nothing but the draw.
inline SamplingParams all_off(std::uint32_t seed) {
  SamplingParams p;
  p.seed = seed;
  p.temperature = 1.0F;
  p.top_k = 0;
  p.top_p = 1.0F;
  p.min_p = 0.0F;
  return p;
}

inline void turn_on(Random& random, SamplingParams& p, SamplerKind kind) {
  switch (kind) {
    case SamplerKind::kPenalties:
      p.repeat_last_n = pick(random, {1, 7, 64, 1000});
      p.repeat_penalty = pick(random, {1.0F, 1.1F, 1.7F, 0.8F});
      p.frequency_penalty = pick(random, {0.0F, 0.2F, -0.3F});
      p.presence_penalty = pick(random, {0.5F, -0.2F});
      return;
    case SamplerKind::kDry:
      p.dry_multiplier = pick(random, {0.5F, 0.8F, 2.0F});
      p.dry_base = pick(random, {1.0F, 1.3F, 1.75F, 3.0F});
      p.dry_allowed_length = pick(random, {0, 1, 2, 4});
      p.dry_penalty_last_n = pick(random, {3, 20, 64, 2000});
      return;
    case SamplerKind::kTopNSigma:
      p.top_n_sigma = pick(random, {0.3F, 1.0F, 2.5F});
      return;
    case SamplerKind::kTopK:
      p.top_k = pick(random, {1, 2, 10, 40, 128, 129, 500, 1000, 1024, 1025, 5000, 50000});
      return;
    case SamplerKind::kTypicalP:
      p.typical_p = pick(random, {0.1F, 0.5F, 0.9F, 0.99F});
      return;
    case SamplerKind::kTopP:
      p.top_p = pick(random, {0.0F, 0.1F, 0.5F, 0.95F, 0.999F});
      return;
    case SamplerKind::kMinP:
      p.min_p = pick(random, {0.0001F, 0.01F, 0.05F, 0.3F, 1.0F});
      return;
    case SamplerKind::kXtc:
      p.xtc_probability = pick(random, {0.1F, 0.5F, 1.0F});
      p.xtc_threshold = pick(random, {0.0001F, 0.01F, 0.1F, 0.5F});
      return;
    case SamplerKind::kTemperature:
      p.temperature = pick(random, {0.0F, 0.3F, 0.8F, 1.5F, 3.0F});
      if (chance(random, 0.3)) {
        p.dynatemp_range = pick(random, {0.1F, 0.7F, 1.2F});
        p.dynatemp_exponent = pick(random, {0.5F, 1.0F, 2.3F});
      }
      return;
  }
}

constexpr SamplerKind kKinds[] = {
    SamplerKind::kPenalties, SamplerKind::kDry,      SamplerKind::kTopNSigma,
    SamplerKind::kTopK,      SamplerKind::kTypicalP, SamplerKind::kTopP,
    SamplerKind::kMinP,      SamplerKind::kXtc,      SamplerKind::kTemperature};

// Breakers as make_dry_breakers() would find them, of tokens that occur.
inline DryBreakers random_breakers(Random& random, std::int32_t n_words) {
  DryBreakers breakers;
  for (TokenId head = 0; head < n_words; ++head) {
    if (!chance(random, 0.1)) continue;
    for (std::int32_t i = 0; i < pick(random, {1, 1, 2}); ++i) {
      const auto begin = static_cast<std::int32_t>(breakers.tails.size());
      for (std::int32_t n = pick(random, {0, 0, 1, 3}); n > 0; --n) {
        breakers.tails.push_back(below(random, n_words));
      }
      breakers.entries.push_back({head, begin, static_cast<std::int32_t>(breakers.tails.size())});
    }
  }
  return breakers;
}

// A request with a random chain and a prompt that repeats itself. only: the one link that is on, or
// -1 for a mixture, or -2 for mirostat.
inline RequestSpec random_request(Random& random, std::int32_t n_vocab, std::int32_t only) {
  RequestSpec spec;
  spec.sampling = all_off(random());
  SamplingParams& p = spec.sampling;
  if (only >= 0) {
    turn_on(random, p, static_cast<SamplerKind>(only));
  } else {
    for (const SamplerKind kind : kKinds) {
      if (chance(random, kind == SamplerKind::kTypicalP ? 0.15 : 0.4)) turn_on(random, p, kind);
    }
    p.min_keep = pick(random, {0, 0, 1, 3, 20});
    if (chance(random, 0.5)) std::shuffle(p.chain, p.chain + p.n_chain, random);
    if (chance(random, 0.2)) p.chain[p.n_chain++] = pick(random, {p.chain[0], p.chain[3]});
  }
  if (only == -2 || (only == -1 && chance(random, 0.1))) {
    p.mirostat = pick(random, {1, 2});
    p.mirostat_tau = pick(random, {1.0F, 3.0F, 5.0F, 9.0F});
    p.mirostat_eta = pick(random, {0.05F, 0.1F, 0.5F});
  }
  const std::int32_t n_words = std::min(n_vocab, pick(random, {3, 8, 60}));
  if (chance(random, 0.3)) {
    for (std::int32_t i = 0; i < 5; ++i) {
      spec.logit_bias.push_back(
          {below(random, n_words), pick(random, {-INFINITY, -2.5F, 1.3F, 5.0F})});
    }
  }
  if (chance(random, 0.7)) spec.dry_breakers = random_breakers(random, n_words);
  spec.prompt.resize(static_cast<std::size_t>(1 + below(random, 300)));
  for (TokenId& token : spec.prompt) token = below(random, n_words);
  if (chance(random, 0.5)) {
    spec.n_probs = pick(random, {0, 1, 5, 20, 128});
    spec.want_logprob = true;
    spec.post_sampling_probs = chance(random, 0.5);
  }
  return spec;
}

inline std::vector<float> random_row(Random& random, std::int32_t n_vocab) {
  std::vector<float> row(static_cast<std::size_t>(n_vocab));
  std::normal_distribution<float> normal(pick(random, {0.0F, 0.0F, -3.0F, 12.0F}),
                                         pick(random, {0.01F, 0.5F, 2.0F, 4.0F, 12.0F}));
  const bool is_coarse = chance(random, 0.2);  // many equal logits
  const bool has_peaks = chance(random, 0.4);
  for (float& x : row) {
    x = normal(random);
    if (is_coarse) x = std::round(x * 8.0F) / 8.0F;
  }
  if (has_peaks) {
    for (TokenId i = 0; i < std::min(n_vocab, 8); ++i) row[static_cast<std::size_t>(i)] += 9.0F;
  }
  if (chance(random, 0.1)) row[static_cast<std::size_t>(below(random, n_vocab))] = -INFINITY;
  if (chance(random, 0.2)) {  // as a grammar masks it: a few may come, side by side or anywhere
    const std::int32_t n_left = std::min(n_vocab, pick(random, {1, 3, 39, 40, 41, 300, 3000}));
    const std::int32_t first = chance(random, 0.5) ? -1 : below(random, n_vocab - n_left + 1);
    std::vector<bool> stays(row.size());
    for (std::int32_t i = 0; i < n_left; ++i) {
      stays[static_cast<std::size_t>(first < 0 ? below(random, n_vocab) : first + i)] = true;
    }
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = stays[i] ? row[i] : -INFINITY;
  }
  return row;
}

inline std::string describe(const RequestSpec& spec) {
  const SamplingParams& p = spec.sampling;
  std::string text;
  for (std::int32_t i = 0; i < p.n_chain; ++i) text += std::string(name_of(p.chain[i])) + " ";
  char numbers[512];
  std::snprintf(
      numbers, sizeof numbers,
      "| t %g dyn %g^%g k %d p %g min %g typ %g sig %g xtc %g/%g rep %g/%g/%g last %d dry "
      "%g^%g>%d last %d miro %d tau %g keep %d biases %zu prompt %zu probs %d%s",
      p.temperature, p.dynatemp_range, p.dynatemp_exponent, p.top_k, p.top_p, p.min_p, p.typical_p,
      p.top_n_sigma, p.xtc_probability, p.xtc_threshold, p.repeat_penalty, p.frequency_penalty,
      p.presence_penalty, p.repeat_last_n, p.dry_multiplier, p.dry_base, p.dry_allowed_length,
      p.dry_penalty_last_n, p.mirostat, p.mirostat_tau, p.min_keep, spec.logit_bias.size(),
      spec.prompt.size(), spec.n_probs, spec.post_sampling_probs ? " after" : "");
  return text + numbers;
}

}  // namespace unpaced::test
