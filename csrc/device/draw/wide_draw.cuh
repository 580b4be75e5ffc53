// The draw from a list of any length: softmax, mirostat 1 and 2. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/wide_chain.cuh"
#include "sampling/chain/mirostat.h"

namespace unpaced {

// What was drawn, and what the probabilities are: of mirostat the values, else exp(logit - best) /
// sum.
struct WideDrawn {
  std::int32_t index;  // -1: nothing can be drawn
  float best;
  double sum;
};

// find_share() may be off by the roundings of two sums of n numbers, and a division each.
__device__ inline double draw_slack(std::int32_t n) { return 6.0 * n + 64.0; }

// draw_softmax(). exactly: the sum is wanted, too.
__device__ inline WideDrawn wide_draw_softmax(WideChain& w, bool exactly) {
  const double u = *team_room().scratch.u;
  const float best = w.best();
  if (!(best > -kInfinity)) return {-1, best, 1.0};
  const std::int32_t n = w.list.size;
  if (n == 1) return {0, best, 1.0};
  std::uint64_t* words = w.team.next_broadcast();
  if (w.team.thread() == 0) words[0] = ~std::uint64_t{0};
  fill_exponentials(w, best, 1.0F);
  if (!exactly) {
    const std::int32_t found = find_share(w.team, n, u, draw_slack(n), words);
    if (found >= 0) return {found, best, 1.0};
  }
  const OrderedResult drawn = ordered_sum<DoubleSum>(w.team, n, 1.0, {u, Search::kReachesShare});
  return {drawn.found < n ? drawn.found : -1, best, drawn.sum};
}

// draw_discrete() of the values / divisor, which become the values.
__device__ inline std::int32_t wide_draw_discrete(WideChain& w, float divisor) {
  const std::int32_t n = w.list.size;
  const float* value = w.values();
  std::uint64_t* words = w.team.next_broadcast();
  if (w.team.thread() == 0) {
    words[0] = ~std::uint64_t{0};
    if (n >= 2) *team_room().scratch.u = w.s.streams.rng.next_f64();
  }
  w.fill([&](std::int32_t i) { return value[i] / divisor; });
  if (n < 2) return 0;
  const double u = *team_room().scratch.u;
  const std::int32_t found = find_share(w.team, n, u, draw_slack(n), words);
  if (found >= 0) return found;
  const double sum = ordered_sum<DoubleSum>(w.team, n, 1.0, {}).sum;
  const OrderedResult drawn = ordered_sum<DoubleSum>(w.team, n, sum, {u, Search::kReaches});
  if (drawn.found < n) return drawn.found;
  // The last one that is possible: they are in descending order.
  return count_list(w.team, w.list, [value](std::int32_t i) { return value[i] > 0.0F; }) - 1;
}

// Version 1's k, from the probabilities in descending order.
__device__ inline std::int32_t mirostat_k(WideChain& w, float divisor, float mu) {
  constexpr std::int32_t kMaxTerms = mirostat_detail::kZipfTokens - 1;
  const float* value = w.values();
  float* terms = reinterpret_cast<float*>(w.shared.scratch);
  const std::int32_t n = min(kMaxTerms, w.list.size - 1);
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  if (i < n) {
    const float t = log_f32(static_cast<float>(i + 2) / static_cast<float>(i + 1));
    const float b = log_f32((value[i] / divisor) / (value[i + 1] / divisor));
    terms[2 * i] = t * b;
    terms[2 * i + 1] = t * t;
  }
  __syncthreads();
  float sum_tb = 0.0F;
  float sum_tt = 0.0F;
  for (std::int32_t j = 0; j < n; ++j) {
    sum_tb += terms[2 * j];
    sum_tt += terms[2 * j + 1];
  }
  return mirostat_1_k(sum_tb / sum_tt, mu, w.s.n_vocab);
}

__device__ inline WideDrawn wide_draw_mirostat(WideChain& w, std::int32_t version) {
  w.sort();
  if (!(w.list.items[0].logit > -kInfinity)) return {-1, 0.0F, 1.0};
  Mirostat& state = w.s.streams.mirostat;
  const float mu = state.mu;  // before the next sync(): the drawing block writes it
  const float sum = wide_softmax(w);
  const float* value = w.values();
  std::int32_t n = 0;
  if (version == 1) {
    n = min(w.list.size, mirostat_k(w, sum, mu));
  } else {
    n = first_in_list(w.team, w.list,
                      [&](std::int32_t i) { return -log2_f32(value[i] / sum) > mu; });
  }
  w.list.size = max(n, 1);
  w.team.sync();
  if (w.team.rank == 0 && threadIdx.x < kPage) {  // the rest of the last page is 0
    const std::int32_t i = w.list.size + static_cast<std::int32_t>(threadIdx.x);
    if (i / kPage == (w.list.size - 1) / kPage) w.values()[i] = 0.0F;
  }
  w.team.sync();
  if (w.leave()) return {-1, 0.0F, 0.0};
  const std::int32_t drawn = wide_draw_discrete(w, w.sum());
  if (w.team.thread() == 0) {
    const float error = -log2_f32(value[drawn]) - state.tau;
    state.mu = state.mu - state.eta * error;
  }
  return {drawn, 0.0F, 0.0};
}

}  // namespace unpaced
