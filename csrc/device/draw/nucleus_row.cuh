// What a chain of top-p, min-p and a temperature does to a row, measured by the whole team without
// sorting: sums in any order, and which tokens the draw can hit. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/row_selection.cuh"
#include "sampling/arithmetic/nucleus_bounds.h"
#include "sampling/chain/temperature.h"

namespace unpaced {

// What the links do to the row, the same for every thread.
struct NucleusRow {
  const float* logits;
  std::int32_t n_vocab;
  float best;
  float threshold;  // logits from here on are kept, if top-p does not cut them
  float divisor;    // the temperature
  float scaled_best;
  float buckets_per_logit;

  __device__ bool keeps(float logit) const { return logit >= threshold; }
  __device__ float exponential(float logit) const { return exp_f32(logit - best); }
  // In the draw.
  __device__ float weight(float logit) const { return exp_f32(logit / divisor - scaled_best); }
  // Of a logit that is kept; a better one never has a higher bucket.
  __device__ std::int32_t bucket(float logit) const {
    const float below = (best - logit) * buckets_per_logit;
    return below < static_cast<float>(kMassBuckets - 1) ? static_cast<std::int32_t>(below)
                                                        : kMassBuckets - 1;
  }
};

// How a chain goes on from the best logit; divides by 0 if only the best can be drawn.
__device__ inline NucleusRow nucleus_row(const DeviceSamplerState& s, const float* logits,
                                         float best) {
  // Without min-p: as far down as tokens of a peaked row may matter.
  constexpr float kReach = 9.0F;
  const TemperatureScale scale = temperature_scale(s.nucleus.temperature, best);
  const float log_p = s.nucleus.has_min_p ? s.log_min_p : -kReach;
  return {.logits = logits,
          .n_vocab = s.n_vocab,
          .best = best,
          .threshold = best + log_p,
          .divisor = scale.greedy ? 0.0F : scale.divisor,
          .scaled_best = best / scale.divisor,
          .buckets_per_logit = log_p < 0.0F ? kMassBuckets / -log_p : 0.0F};
}

// Which buckets' tokens are listed, and whether top-p surely keeps what min-p does.
struct NucleusView {
  bool is_possible;
  bool is_whole;
  std::int32_t first;
  std::int32_t last;
};

// Sums over the row.
struct NucleusSums {
  double all;     // exponentials
  double slack;   // of their float sum
  double kept;    // exponentials of what is kept
  double weight;  // weights of what is kept
  double n_kept;
};
inline constexpr std::int32_t kNucleusSums = 5;

// visit(is in the row, logit, token), all lanes of a warp together.
template <class Visit>
__device__ void visit_row(const Team& team, const NucleusRow& row, const Visit& visit) {
  const std::int32_t step = 4 * team.n_threads();
  for (std::int32_t base = 128 * team.warp(); base < row.n_vocab; base += step) {
    const std::int32_t first = base + 4 * lane();
    float x[4];
    if (first + 3 < row.n_vocab) {
      const float4 four = *reinterpret_cast<const float4*>(row.logits + first);
      x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
      for (int i = 0; i < 4; ++i) x[i] = first + i < row.n_vocab ? row.logits[first + i] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) visit(first + i < row.n_vocab, x[i], first + i);
  }
}

// The block's sums into global memory, to be read after a sync().
template <std::int32_t kSums>
__device__ void leave_sums(double (&sums)[kSums], double* room, double* out) {
#pragma unroll
  for (std::int32_t i = 0; i < kSums; ++i) {
    sums[i] = warp_sum(sums[i]);
    if (lane() == 0) room[i * 32 + threadIdx.x / 32] = sums[i];
  }
  __syncthreads();
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  if (warp < kSums) {
    const double sum = warp_sum(room[warp * 32 + lane()]);
    if (lane() == 0) out[warp] = sum;
  }
}

// What all blocks have left at `from`, the same for every thread.
__device__ inline double gather_sum(const Team& team, const double* from) {
  return warp_sum(lane() < team.n_blocks ? from[lane() * kNucleusRoom] : 0.0);
}

// The sum over this thread and those before it in the block.
template <class T>
__device__ T block_running(T mine) {
  static_assert(sizeof(T) == sizeof(std::uint64_t));
  auto* of_warps = reinterpret_cast<T*>(team_room().reduction);
  T running = mine;
  for (int offset = 1; offset < 32; offset *= 2) {
    const T below = __shfl_up_sync(kAllLanes, running, offset);
    if (lane() >= offset) running += below;
  }
  __syncthreads();
  if (lane() == 31) of_warps[threadIdx.x / 32] = running;
  __syncthreads();
  const bool is_before = lane() < static_cast<std::int32_t>(threadIdx.x / 32);
  const T before = warp_reduce(is_before ? of_warps[lane()] : T{}, [](T a, T b) { return a + b; });
  return running + before;
}

// Measures the row: sums and the buckets' weights, each block's into global memory. Ends with a
// sync().
__device__ inline NucleusSums measure_row(Team& team, const NucleusRow& row, float units) {
  const WideScratch& s = team_room().scratch;
  auto* mass = reinterpret_cast<std::uint32_t*>(team_room().words);
  auto* room = reinterpret_cast<double*>(team_room().words + kMassBuckets);
  mass[threadIdx.x] = 0U;
  __syncthreads();
  double sums[kNucleusSums] = {};
  visit_row(team, row, [&](bool in, float logit, std::int32_t) {
    if (!in) return;
    const float e = row.exponential(logit);
    sums[0] += e;
    sums[1] += NucleusBounds::slack_of(e);
    if (!row.keeps(logit)) return;
    const float weight = row.weight(logit);
    sums[2] += e;
    sums[3] += weight;
    sums[4] += 1.0;
    const auto n_units = static_cast<std::uint32_t>(weight * units);
    if (n_units > 0U) atomicAdd(&mass[row.bucket(logit)], n_units);
  });
  leave_sums(sums, room, s.nucleus_sums + team.rank * kNucleusRoom);
  s.nucleus_mass[team.rank * kMassBuckets + threadIdx.x] = mass[threadIdx.x];
  if (team.thread() == 0) *s.n_listed = 0;
  team.sync();
  const double* from = s.nucleus_sums;
  return {gather_sum(team, from), gather_sum(team, from + 1), gather_sum(team, from + 2),
          gather_sum(team, from + 3), gather_sum(team, from + 4)};
}

// The buckets in which the weights, in descending order of logits, reach `target`. Weights are
// counted in units, rounded down.
__device__ inline void find_buckets(const Team& team, double target, double slack,
                                    NucleusView& view) {
  const WideScratch& s = team_room().scratch;
  std::uint64_t units = 0;
#pragma unroll 4
  for (std::int32_t block = 0; block < team.n_blocks; ++block) {
    units += s.nucleus_mass[block * kMassBuckets + threadIdx.x];
  }
  const auto up_to = static_cast<double>(block_running(units));
  view.first = __syncthreads_count(up_to + slack < target ? 1 : 0);
  view.last = min(__syncthreads_count(up_to <= target ? 1 : 0), kMassBuckets - 1);
}

// Lists the keys of the view's tokens and sums the weights of those before. Ends with a sync().
__device__ inline double list_view(Team& team, const NucleusRow& row, const NucleusView& view) {
  const WideScratch& s = team_room().scratch;
  double before[1] = {};
  visit_row(team, row, [&](bool in, float logit, std::int32_t token) {
    const bool keeps = in && row.keeps(logit);
    const std::int32_t bucket = keeps ? row.bucket(logit) : kMassBuckets;
    if (bucket < view.first) before[0] += row.weight(logit);
    const bool is_listed = bucket >= view.first && bucket <= view.last;
    const unsigned lanes = __ballot_sync(kAllLanes, is_listed);
    if (lanes == 0U) return;
    std::int32_t slot = 0;
    if (lane() == 0) slot = atomicAdd(s.n_listed, __popc(lanes));
    slot = __shfl_sync(kAllLanes, slot, 0) + __popc(lanes & ((1U << lane()) - 1U));
    if (is_listed && slot < kMaxSureListed) s.listed[slot] = key_of(logit, token);
  });
  auto* room = reinterpret_cast<double*>(team_room().words);
  double* out = s.nucleus_sums + kNucleusSums;
  leave_sums(before, room, out + team.rank * kNucleusRoom);
  team.sync();
  return gather_sum(team, out);
}

}  // namespace unpaced
