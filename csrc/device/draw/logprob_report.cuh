// Fills a step's StepLogprobs. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/wide_draw.cuh"

namespace unpaced {

// The logarithm of the row's sum of exp(logit), as TopLogprobs computes it (the double sums are in
// another order), and a copy of the row, which biases and penalties change. The whole cluster.
__device__ inline double row_log_sum(Team& team, const StepRow& row, float best) {
  double sum = 0.0;
  for (std::int32_t i = team.thread(); i < row.n_vocab; i += team.n_threads()) {
    const float logit = row.logits[i];
    team_room().scratch.raw[i] = logit;
    sum += exp_f32(logit - best);
  }
  return best + ::log(team_sum(team, sum));
}

// Logarithms before the chain: the n best. One block; the row is as the model gave it.
__device__ inline void report_best(const StepRow& row, const std::uint64_t* keys, Shared& shared,
                                   std::uint64_t best, double log_sum, StepLogprobs& out) {
  const std::int32_t n_wanted = min(row.sampling->logprobs.n_pairs, row.n_vocab);
  const std::int32_t n = n_wanted > 0 ? select_top(row, keys, shared, n_wanted, best) : 0;
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) {
    const Candidate& c = shared.list[i];
    out.pair[i] = {c.token, static_cast<float>(c.logit - log_sum)};
  }
  if (threadIdx.x == 0) out.n_pairs = n;
  __syncthreads();
}

// Probabilities after the chain: the best of the list. The whole team.
__device__ inline void report_list(WideChain& w, const WideDrawn& drawn, StepLogprobs& out) {
  const bool is_mirostat = w.s.params.mirostat != 0;
  const float* value = w.values();
  const auto probability = [&](std::int32_t i) {
    if (is_mirostat) return value[i];
    if (w.list.size == 1) return 1.0F;
    return static_cast<float>(exp_f32(w.list.items[i].logit - drawn.best) / drawn.sum);
  };
  if (w.team.rank == 0 && threadIdx.x == 0) out.drawn = probability(drawn.index);
  w.team.sync();
  w.sort();
  if (w.team.rank != 0) return;
  const std::int32_t n = min(w.s.logprobs.n_pairs, w.list.size);
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  const float p = i < n ? probability(i) : 0.0F;
  if (p > 0.0F) out.pair[i] = {w.list.items[i].token, p};
  const std::int32_t n_possible = __syncthreads_count(p > 0.0F);
  if (threadIdx.x == 0) out.n_pairs = n_possible;
}

}  // namespace unpaced
