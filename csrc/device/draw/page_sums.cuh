// Numbers in pages that one warp works on at a time, and plain sums of them: exact to 2^-50 or so.
// Device code of sample_kernels.cu.
#pragma once

#include "device/draw/cluster_team.cuh"

namespace unpaced {

inline constexpr std::int32_t kPerLane = kPage / 32;

// value[i] = change(i) for i < n, 0 to the end of the page, and the sum of counted(value) over
// every page into page_sum. The whole team; ends with a sync().
template <class Change, class Counted>
__device__ void fill_values(Team& team, std::int32_t n, const Change& change,
                            const Counted& counted) {
  const WideScratch& s = team_room().scratch;
  float* value = s.value;
  const std::int32_t n_pages = (n + kPage - 1) / kPage;
#pragma unroll 1
  for (std::int32_t page = team.warp(); page < n_pages; page += team.n_warps()) {
    double sum = 0.0;
#pragma unroll 2
    for (std::int32_t j = 0; j < kPerLane; ++j) {
      const std::int32_t i = page * kPage + j * 32 + lane();
      const float x = i < n ? change(i) : 0.0F;
      value[i] = x;
      sum += counted(x);
    }
    sum = warp_sum(sum);
    if (lane() == 0) s.page_sum[page] = sum;
  }
  team.sync();
}

// One warp: the sum of the pages before, about.
__device__ __noinline__ double sum_before_page(const WideScratch& s, std::int32_t page) {
  double before = 0.0;
#pragma unroll 4
  for (std::int32_t i = lane(); i < page; i += 32) before += s.page_sum[i];
  return warp_sum(before);
}

// The first of n values above 0 at which their running sum reaches u times their sum, if that is so
// whatever the order and the rounding of the additions; -1 if they could decide. 0 <= u < 1;
// `slack` in units of the last place of the sum. The whole team, with page_sum filled; `words`
// holds -1 since before the last sync().
__device__ __noinline__ std::int32_t find_share(Team& team, std::int32_t n, double u, double slack,
                                                std::uint64_t* words) {
  const WideScratch& s = team_room().scratch;
  const float* value = s.value;
  const std::int32_t n_pages = (n + kPage - 1) / kPage;
  const double sum = sum_before_page(s, n_pages);
  const double target = sum * u;
  const double margin = sum * slack * 0x1p-53;
  for (std::int32_t page = team.warp(); page < n_pages; page += team.n_warps()) {
    const double before = sum_before_page(s, page);
    if (before > target || before + s.page_sum[page] < target) continue;
    double x[kPerLane];
    double mine = 0.0;
#pragma unroll
    for (std::int32_t j = 0; j < kPerLane; ++j) {
      const std::int32_t i = page * kPage + lane() * kPerLane + j;
      x[j] = i < n ? static_cast<double>(value[i]) : 0.0;
      mine += x[j];
    }
    double running = mine;
    for (int offset = 1; offset < 32; offset *= 2) {
      const double below = __shfl_up_sync(kAllLanes, running, offset);
      if (lane() >= offset) running += below;
    }
    running += before - mine;
#pragma unroll
    for (std::int32_t j = 0; j < kPerLane; ++j) {
      const double next = running + x[j];
      if (running < target - margin && next > target + margin) {
        words[0] = static_cast<std::uint64_t>(page * kPage + lane() * kPerLane + j);
      }
      running = next;
    }
  }
  team.sync();
  return static_cast<std::int32_t>(words[0]);
}

}  // namespace unpaced
