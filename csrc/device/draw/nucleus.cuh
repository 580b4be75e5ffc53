// Which items of a long list are too unlikely for top-p to keep, so that they need no sorting.
// Device code of sample_kernels.cu.
#pragma once

#include "device/draw/page_sums.cuh"
#include "device/draw/wide_list.cuh"

namespace unpaced {

inline constexpr std::int32_t kLogitBuckets = 1024;
inline constexpr float kBucketsPerLogit = 64.0F;
inline constexpr std::int32_t kMinFiltered = 16384;  // items; fewer are sorted at once

__device__ inline std::int32_t bucket_of(float best, float logit) {
  const float below = (best - logit) * kBucketsPerLogit;
  return below < static_cast<float>(kLogitBuckets) ? static_cast<std::int32_t>(below)
                                                   : kLogitBuckets;
}

// Drops what lies below the logit at which the probabilities above, added in any order and rounded
// as softmax and top-p round them, are sure to have reached p. The values are exp(logit - best), in
// the list's order, with their page_sum.
__device__ __noinline__ void drop_far_from_nucleus(Team& team, WideList& c, float best, float p) {
  // Of a cluster one block stays for short lists only; where there is none it has the long ones.
  if (c.size < kMinFiltered || (kHasClusters && team.n_blocks == 1)) return;
  const WideScratch& s = team_room().scratch;
  // In integers, rounded down: adding floats to shared memory is slow.
  constexpr float kUnits = 262144.0F;
  auto* mass = reinterpret_cast<std::uint32_t*>(team_room().words);
  const auto bucket = static_cast<std::int32_t>(threadIdx.x);
  static_assert(kLogitBuckets == kThreads);
  mass[bucket] = 0U;
  __syncthreads();
  for (std::int32_t i = team.thread(); i < c.size; i += team.n_threads()) {
    const std::int32_t b = bucket_of(best, c.items[i].logit);
    const auto units = static_cast<std::uint32_t>(s.value[i] * kUnits);
    if (b < kLogitBuckets && units > 0U) atomicAdd(&mass[b], units);
  }
  __syncthreads();
  auto* of_blocks = reinterpret_cast<std::uint32_t*>(c.spare);  // n_blocks x kLogitBuckets
  of_blocks[team.rank * kLogitBuckets + bucket] = mass[bucket];
  team.sync();
  double above = 0.0;
  for (std::int32_t block = 0; block < team.n_blocks; ++block) {
    above += static_cast<double>(of_blocks[block * kLogitBuckets + bucket]);
  }
  for (int offset = 1; offset < 32; offset *= 2) {
    const double lower = __shfl_up_sync(kAllLanes, above, offset);
    if (lane() >= offset) above += lower;
  }
  auto* of_warps = reinterpret_cast<double*>(team_room().reduction);
  if (lane() == 31) of_warps[threadIdx.x / 32] = above;
  __syncthreads();
  for (std::int32_t warp = 0; warp < bucket / 32; ++warp) above += of_warps[warp];
  // Each of the float sums is within n roundings of the exact one.
  const double slack = 0.004 + 4.0 * c.size * 0x1p-24;
  const double enough =
      sum_before_page(s, (c.size + kPage - 1) / kPage) * p * (1.0 + slack) * kUnits;
  const std::int32_t n_short = __syncthreads_count(above < enough);
  // No thread may be at the next use of the spare items before all have read.
  team.sync();
  if (n_short >= kLogitBuckets) return;
  filter_list(team, c,
              [best, n_short](const Item& item) { return bucket_of(best, item.logit) <= n_short; });
}

}  // namespace unpaced
