// The usual chain (top-p, min-p, temperature) and the draw without top-p's sums in order, where
// they cannot matter: from the whole row, or among its k best. Device code of sample_kernels.cu.
//
// Top-p and min-p both keep a beginning of the descending order. Sums in any order bound top-p's
// running sum (sampling/nucleus_bounds.h): if it is surely below p where min-p cuts, top-p cuts
// nothing more; if not, and few tokens are kept, it is looked up between which two of them it
// surely reaches p. Nothing is sorted but what the draw can hit: the tokens are counted into
// buckets of logits by their weight in the draw, and those of the bucket with the number drawn are
// listed. Every doubt, in a cut or in the draw, is left to the chain that does it all in order.
#pragma once

#include "device/draw/nucleus_row.cuh"
#include "device/draw/text_penalties.cuh"

namespace unpaced {

// How many of the block's first n tokens, in descending order, top-p keeps, n at most; -1: not
// sure. mass: of the thread's token and the better ones.
__device__ inline std::int32_t count_kept(const NucleusBounds& bounds, double mass, std::int32_t n,
                                          float p) {
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  const bool is_below = bounds.is_below(mass, i + 1, p);
  const std::int32_t n_below = __syncthreads_count(i < n && is_below ? 1 : 0);
  const bool reaches = bounds.reaches(mass, i + 1, p);
  const std::int32_t n_short = __syncthreads_count(i < n && !reaches ? 1 : 0);
  return n_below == n_short ? min(n_below + 1, n) : -1;
}

// The block's last thread's value for all its threads.
__device__ inline double block_last(Shared& shared, double mine) {
  if (threadIdx.x == kThreads - 1) shared.total = mine;
  __syncthreads();
  const double last = shared.total;
  __syncthreads();
  return last;
}

// The token that the number u hits, -1: not sure. Every thread of the block has a token, in
// descending order; its weight is 0 if it is not kept. up_to: the weights of its and all better
// ones, added in any order, which of all n that are kept is `total`.
__device__ inline TokenId hit_token(Shared& shared, TokenId token, double weight, double up_to,
                                    double total, std::int32_t n, double u) {
  const bool is_first = threadIdx.x == 0 && up_to == weight;
  if (threadIdx.x == 0) shared.first = -1;
  __syncthreads();
  // Sums of so many numbers in another order, ours and the host's, and their roundings.
  const double margin = total * (6.0 * n + 64.0) * 0x1p-53;
  const double target = total * u;
  const bool is_past = is_first || up_to - weight < target - margin;
  if (weight > 0.0 && is_past && up_to > target + margin) shared.first = token;
  __syncthreads();
  return shared.first;
}

// The token that the number u hits among the listed ones, -1: not sure. One block.
__device__ inline TokenId find_listed(const NucleusChain& chain, const NucleusRow& row,
                                      const NucleusBounds& bounds, const NucleusSums& sums,
                                      bool is_whole, double before, double u, Shared& shared) {
  const WideScratch& s = team_room().scratch;
  std::uint64_t* keys = team_room().words;
  const std::int32_t n = *s.n_listed;
  if (n > kMaxSureListed) return -1;
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  if (i < n) keys[i] = s.listed[i];
  __syncthreads();
  if (n <= kMaxRanked) {
    rank_keys(keys, n);
  } else {
    sort_keys(keys, n);
  }
  const float logit = i < n ? logit_of(keys[i]) : -kInfinity;
  const TokenId token = i < n ? token_of(keys[i]) : -1;
  std::int32_t n_kept = n;
  if (!is_whole) {
    const double e = i < n ? static_cast<double>(row.exponential(logit)) : 0.0;
    const double mass = block_running(e);
    n_kept = count_kept(bounds, mass, n, chain.top_p);
    // Without min-p there may be more than what is listed.
    const bool all_below =
        !chain.has_min_p && !bounds.reaches(block_last(shared, mass), n, chain.top_p);
    if (n_kept < 0 || all_below) return -1;
  }
  const double weight = i < n_kept ? static_cast<double>(row.weight(logit)) : 0.0;
  const double up_to = before + block_running(weight);
  if (is_whole) {
    return hit_token(shared, token, weight, up_to, sums.weight,
                     static_cast<std::int32_t>(sums.n_kept), u);
  }
  return hit_token(shared, token, weight, up_to, block_last(shared, up_to), n_kept, u);
}

// The chain and the draw among the n best of the row, which are shared.list; -1: the chain in order
// must decide. One block.
__device__ __noinline__ TokenId draw_among_best(const DeviceSamplerState& s, Shared& shared,
                                                std::int32_t n) {
  const NucleusChain& chain = s.nucleus;
  const NucleusRow row = nucleus_row(s, nullptr, shared.list[0].logit);
  if (!(row.best > -kInfinity) || !(row.divisor > 0.0F)) return -1;
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  const float logit = i < n ? shared.list[i].logit : -kInfinity;
  std::int32_t n_kept = n;
  if (chain.has_min_p) {
    const std::int32_t n_reaching = __syncthreads_count(i < n && row.keeps(logit) ? 1 : 0);
    n_kept = max(1, max(n_reaching, min(s.params.min_keep, n)));
  }
  if (chain.has_top_p) {
    const double mass = block_running(i < n ? static_cast<double>(row.exponential(logit)) : 0.0);
    const NucleusBounds bounds(block_last(shared, mass), n * NucleusBounds::slack_of(1.0F));
    const std::int32_t n_nucleus = count_kept(bounds, mass, n_kept, chain.top_p);
    if (n_nucleus < 0) return -1;
    n_kept = min(n_kept, max(n_nucleus, s.params.min_keep));
  }
  const double weight = i < n_kept ? static_cast<double>(row.weight(logit)) : 0.0;
  const double up_to = block_running(weight);
  const double total = block_last(shared, up_to);
  const TokenId token = i < n ? shared.list[i].token : -1;
  return hit_token(shared, token, weight, up_to, total, n_kept, *team_room().scratch.u);
}

struct RowDrawn {
  TokenId token;  // -1: the chain in order must decide
  bool is_whole;  // top-p surely keeps what min-p does
};

// The chain and the draw from the row. The whole team, which has seen the
// row since it was last changed; the same for every thread. `best`: the best logit of the row.
__device__ __noinline__ RowDrawn draw_from_row(const DeviceSamplerState& s, const float* logits,
                                               Team& team, Shared& shared, float best) {
  const NucleusChain chain = s.nucleus;
  const std::int32_t min_keep = s.params.min_keep;
  const NucleusRow row = nucleus_row(s, logits, best);
  if (!(best > -kInfinity) || !(row.divisor > 0.0F)) return {-1, false};
  // So that no block's bucket overflows.
  const std::int32_t n_of_block = (s.n_vocab / (4 * team.n_threads()) + 1) * 4 * kThreads;
  const float units = 2147483648.0F / static_cast<float>(n_of_block);
  const NucleusSums sums = measure_row(team, row, units);
  const NucleusBounds bounds(sums.all, sums.slack);
  const auto n_kept = static_cast<std::int32_t>(sums.n_kept);
  const double u = *team_room().scratch.u;
  NucleusView view{false, false, 0, kMassBuckets - 1};
  view.is_whole = chain.has_min_p && n_kept >= max(1, min_keep) &&
                  bounds.is_below(sums.kept, n_kept, chain.top_p);
  view.is_possible = view.is_whole || (n_kept >= 1 && n_kept <= kMaxSureListed && min_keep <= 1);
  TokenId token = -1;
  if (view.is_possible) {
    constexpr double kNear = 1e-6;  // roundings of sums and units
    const double target = sums.weight * u * units;
    if (view.is_whole) {
      find_buckets(team, target * (1.0 + kNear), n_kept + 3.0 * kNear * target, view);
    }
    const double before = list_view(team, row, view);
    if (team.rank == 0) {
      token = find_listed(chain, row, bounds, sums, view.is_whole, before, u, shared);
    }
    token = static_cast<TokenId>(team_first(team, static_cast<std::uint64_t>(token)));
  }
  return {token, view.is_whole};
}

// The draw of a NucleusChain, -1: the chain in order must decide. The whole team; the n_best of the
// row are listed, if the chain begins with them.
__device__ inline TokenId draw_nucleus(DeviceSamplerState& s, const float* logits, Team& team,
                                       Shared& shared, std::uint64_t best, std::int32_t n_best) {
  NucleusTally& tally = s.nucleus_tally;
  TokenId token = -1;
  std::int32_t* way = &tally.among_best;
  if (s.top_k > 0) {
    token = draw_among_best(s, shared, n_best);
  } else {
    const float top = logit_of(changes_row(s) ? team_first(team, best) : best);
    const RowDrawn drawn = draw_from_row(s, logits, team, shared, top);
    token = drawn.token;
    way = drawn.is_whole ? &tally.by_min_p : &tally.by_top_p;
  }
  if (team.thread() == 0) ++*(token < 0 ? &tally.in_order : way);
  return token;
}

}  // namespace unpaced
