// Greedy answers of a real model computed in batches of different shapes. ggml computes a token
// alone with other kernels than beside others: the last bits of its logits differ, and where two
// tokens are almost equally likely either is right. From there on the texts are different ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "request/records.h"

namespace unpaced::test {

inline constexpr float kTie = 0.3F;  // nats; 0.17 was seen between kernels, AVX without FMA

struct DrawnToken {
  TokenLogprob drawn;
  std::vector<TokenLogprob> candidates;
};

// The tokens of a request that asked for n_probs.
inline std::vector<DrawnToken> drawn_tokens(std::span<const TokenEvent> events) {
  std::vector<DrawnToken> found;
  std::vector<TokenLogprob> candidates;
  for (const TokenEvent& event : events) {
    if (event.kind == EventKind::kLogprobs) {
      const TokenLogprob* pairs = event.logprobs.pair;
      candidates.insert(candidates.end(), pairs, pairs + event.logprobs.n_pairs);
    } else if (event.kind == EventKind::kToken) {
      const TokenLogprob drawn{.token = event.token.token, .logprob = event.token.logprob};
      found.push_back({.drawn = drawn, .candidates = std::move(candidates)});
      candidates.clear();
    }
  }
  return found;
}

// Whether the tokens and their probabilities are the same, up to the first tie.
inline bool equal_up_to_a_tie(std::span<const TokenEvent> expected,
                              std::span<const TokenEvent> found) {
  const auto ones = drawn_tokens(expected);
  const auto others = drawn_tokens(found);
  for (std::size_t i = 0; i < std::min(ones.size(), others.size()); ++i) {
    const TokenLogprob& one = ones[i].drawn;
    const TokenLogprob& other = others[i].drawn;
    if (std::abs(one.logprob - other.logprob) >= kTie) return false;
    if (one.token == other.token) continue;
    const auto& likely = ones[i].candidates;
    const auto same = std::ranges::find(likely, other.token, &TokenLogprob::token);
    return same != likely.end() && one.logprob - same->logprob < kTie;
  }
  return ones.size() == others.size();
}

}  // namespace unpaced::test
