// What runs of values add to a running sum, measured by many threads before anyone has the sum
// (sampling/ordered_sum.h). Device code of sample_kernels.cu.
#pragma once

#include "device/draw/page_sums.cuh"
#include "sampling/arithmetic/ordered_sum.h"

namespace unpaced {

inline constexpr std::int32_t kRun = 64;
inline constexpr std::int32_t kRunsPerPage = kPage / kRun;

// A page's or a run's growth, for sums of 2^exponent and 2^(exponent + 1), even and odd.
template <class Sum>
struct GrowthPlan {
  std::int32_t exponent;
  bool negative;
  Growth<typename Sum::Int> growth[2][2];

  // That of a sum; none if it was not foreseen.
  __device__ Growth<typename Sum::Int> of(const SumParts<Sum>& sum, bool odd) const {
    const std::int32_t which = sum.exponent - exponent;
    if ((which != 0 && which != 1) || sum.negative != negative) return no_growth<Sum>();
    return growth[which][odd ? 1 : 0];
  }
};

// Plans of all pages, then of all runs.
template <class Sum>
__device__ GrowthPlan<Sum>* growth_plans(const WideScratch& s) {
  static_assert((1 + kRunsPerPage) * sizeof(GrowthPlan<Sum>) <= kPagePlanBytes);
  return reinterpret_cast<GrowthPlan<Sum>*>(s.page_plan);
}

template <class Sum>
__device__ Growth<typename Sum::Int> measure_run(const float* values, double divisor,
                                                 typename Sum::Value start) {
  typename Sum::Value sum = start;
  typename Sum::Value least = start;
  typename Sum::Value greatest = start;
  const auto add = [&](float x) {
    sum = Sum::add(sum, x, divisor);
    if constexpr (Sum::kSigned) {
      least = fabs(sum) < fabs(least) || (sum < 0) != (start < 0) ? sum : least;
      greatest = fabs(sum) > fabs(greatest) ? sum : greatest;
    }
  };
  const auto* fours = reinterpret_cast<const float4*>(values);
#pragma unroll 4
  for (std::int32_t i = 0; i < kRun / 4; ++i) {
    const float4 x = fours[i];
    add(x.x), add(x.y), add(x.z), add(x.w);
  }
  return growth_between<Sum>(start, sum, least, greatest);
}

// Four threads a run, two pages a warp. Needs page_sum.
template <class Sum>
__device__ __noinline__ void plan_growth(Team& team, std::int32_t n, double divisor) {
  using Int = typename Sum::Int;
  const WideScratch& s = team_room().scratch;
  const std::int32_t n_pages = (n + kPage - 1) / kPage;
  GrowthPlan<Sum>* plans = growth_plans<Sum>(s);
  const std::int32_t which = lane() / 2 % 2;
  const std::int32_t odd = lane() % 2;
#pragma unroll 1
  for (std::int32_t first = 2 * team.warp(); first < n_pages; first += 2 * team.n_warps()) {
    const std::int32_t page = first + lane() / 16;
    const double before_first = sum_before_page(s, first);
    const double before = page > first ? before_first + s.page_sum[first] : before_first;
    constexpr double kBelow = 0.984375;  // the rounded sum differs from the exact one
    const std::int32_t exponent =
        max(parts_of<DoubleSum>(before * kBelow).exponent, Sum::kMinExponent);
    const bool negative = before < 0.0;
    const std::int32_t begin = page * kPage + lane() % 16 / 4 * kRun;
    const std::int32_t near = min(begin, n_pages * kPage - kRun);  // the last warp may have no page
    const Growth<Int> mine = measure_run<Sum>(
        s.value + near, divisor, measuring_sum<Sum>(negative, exponent + which, odd != 0));
    if (page < n_pages) {
      GrowthPlan<Sum>& run = plans[n_pages + begin / kRun];
      run.exponent = exponent;
      run.negative = negative;
      run.growth[which][odd] = mine;
    }
    // The page's: the runs' one after the other, each for the parity that it meets.
    Growth<Int> all{0, 0, 0};
    bool is_out = false;
    for (std::int32_t i = 0; i < kRunsPerPage; ++i) {
      const std::int32_t from =
          lane() / 16 * 16 + 4 * i + 2 * which + static_cast<std::int32_t>((odd + all.by) & 1);
      const Int by = __shfl_sync(kAllLanes, mine.by, from);
      const Int low = __shfl_sync(kAllLanes, mine.low, from);
      const Int high = __shfl_sync(kAllLanes, mine.high, from);
      is_out = is_out || high >= Int{1} << Sum::kBits;
      all.low = min(all.low, all.by + low);
      all.high = max(all.high, all.by + high);
      all.by += by;
    }
    if (page < n_pages && lane() % 16 / 4 == 0) {
      plans[page].exponent = exponent;
      plans[page].negative = negative;
      plans[page].growth[which][odd] = is_out ? no_growth<Sum>() : all;
    }
  }
  team.sync();
}

}  // namespace unpaced
