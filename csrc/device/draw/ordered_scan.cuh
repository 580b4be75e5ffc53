// Sums in a definite order with a rounding after every addition (sampling/ordered_sum.h), by many
// threads. Device code of sample_kernels.cu.
//
// The values are cut into pages of four runs. For every run four threads measure what it adds to an
// even and an odd sum of the power of two where the sum will probably be by then, and of the next
// one. One warp then goes from page to page with the exact sum, and adds the runs in which it
// leaves its power of two.
#pragma once

#include "device/draw/growth_plan.cuh"

namespace unpaced {

inline constexpr std::int32_t kMinPlanned = 1024;  // values; fewer are added one by one

// What to look for in a running sum that does not fall.
struct Search {
  double target;
  enum Kind : std::int32_t { kNone, kReaches, kExceeds, kReachesShare } kind = kNone;

  __device__ bool found(double sum) const {
    return kind == kExceeds ? sum > target : sum >= target;
  }
};

struct OrderedResult {
  double sum;
  std::int32_t found;
};

// One warp: the values of a page, brought near.
__device__ inline void bring_page(std::int32_t page) {
  TeamRoom& room = team_room();
  __syncwarp();
#pragma unroll
  for (std::int32_t i = 0; i < kPage / 32; ++i) {
    const std::int32_t at = i * 32 + lane();
    room.page[at] = room.scratch.value[page * kPage + at];
  }
  __syncwarp();
}

// The sum after a run of the page that was brought near, added one by one.
template <class Sum>
__device__ typename Sum::Value add_run(typename Sum::Value sum, std::int32_t begin,
                                       double divisor) {
  const auto* fours = reinterpret_cast<const float4*>(team_room().page + begin);
#pragma unroll 8
  for (std::int32_t i = 0; i < kRun / 4; ++i) {
    const float4 x = fours[i];
    sum = Sum::add(sum, x.x, divisor);
    sum = Sum::add(sum, x.y, divisor);
    sum = Sum::add(sum, x.z, divisor);
    sum = Sum::add(sum, x.w, divisor);
  }
  return sum;
}

// One warp: the sum after a page. All lanes do the same.
template <class Sum>
__device__ typename Sum::Value add_page(double divisor, std::int32_t page,
                                        const GrowthPlan<Sum>* runs, typename Sum::Value sum) {
  bring_page(page);
#pragma unroll 1
  for (std::int32_t begin = 0; begin < kPage; begin += kRun) {
    SumParts<Sum> parts = parts_of<Sum>(sum);
    if (runs != nullptr && parts.exponent > Sum::kMinExponent) {
      const auto growth =
          runs[page * kRunsPerPage + begin / kRun].of(parts, (parts.units & 1) != 0);
      if (stays<Sum>(parts.units, growth)) {
        parts.units += growth.by;
        sum = value_of<Sum>(parts);
        continue;
      }
    }
    sum = add_run<Sum>(sum, begin, divisor);
  }
  return sum;
}

// The units before each lane's page if the first lane's page starts at the parts' and every page
// grows as it is planned to for the parity that it meets.
template <class Sum>
__device__ typename Sum::Int units_before_lane(typename Sum::Int units,
                                               const Growth<typename Sum::Int>& if_even,
                                               const Growth<typename Sum::Int>& if_odd) {
  using Int = typename Sum::Int;
  Int even = if_even.by;
  Int odd = if_odd.by;
  if (!__any_sync(kAllLanes, even != odd)) {
    for (int offset = 1; offset < 32; offset *= 2) {
      const Int below = __shfl_up_sync(kAllLanes, even, offset);
      if (lane() >= offset) even += below;
    }
    return units + even - if_even.by;
  }
  for (int offset = 1; offset < 32; offset *= 2) {
    const Int even_below = __shfl_up_sync(kAllLanes, even, offset);
    const Int odd_below = __shfl_up_sync(kAllLanes, odd, offset);
    if (lane() >= offset) {
      const Int next_even = even_below + ((even_below & 1) != 0 ? odd : even);
      odd = odd_below + ((odd_below & 1) != 0 ? even : odd);
      even = next_even;
    }
  }
  const Int after = units + ((units & 1) != 0 ? odd : even);
  const Int before = __shfl_up_sync(kAllLanes, after, 1);
  return lane() == 0 ? units : before;
}

// One warp: the sum after all pages; page_start is filled.
template <class Sum>
__device__ typename Sum::Value chain_pages(std::int32_t n, double divisor,
                                           const GrowthPlan<Sum>* plans) {
  const WideScratch& s = team_room().scratch;
  const std::int32_t n_pages = (n + kPage - 1) / kPage;
  const GrowthPlan<Sum>* runs = plans == nullptr ? nullptr : growth_plans<Sum>(s) + n_pages;
  typename Sum::Value sum = 0;
  std::int32_t page = 0;
#pragma unroll 1
  while (page < n_pages) {
    SumParts<Sum> parts = parts_of<Sum>(sum);
    if (plans != nullptr && parts.exponent > Sum::kMinExponent) {
      const std::int32_t mine = page + lane();
      auto if_even = no_growth<Sum>();
      auto if_odd = if_even;
      if (mine < n_pages) {
        if_even = plans[mine].of(parts, false);
        if_odd = plans[mine].of(parts, true);
      }
      const auto units = units_before_lane<Sum>(parts.units, if_even, if_odd);
      const auto growth = (units & 1) != 0 ? if_odd : if_even;
      const unsigned leaving = __ballot_sync(kAllLanes, !stays<Sum>(units, growth));
      const std::int32_t first = leaving == 0U ? 32 : __ffs(static_cast<int>(leaving)) - 1;
      if (first > 0) {
        if (lane() < first) {
          s.page_start[mine] =
              static_cast<double>(value_of<Sum>({parts.negative, parts.exponent, units}));
        }
        parts.units = __shfl_sync(kAllLanes, units + growth.by, first - 1);
        sum = value_of<Sum>(parts);
        page += first;
        if (first == 32 || page >= n_pages) continue;
      }
    }
    if (lane() == 0) s.page_start[page] = static_cast<double>(sum);
    sum = add_page<Sum>(divisor, page, runs, sum);
    ++page;
  }
  __syncwarp();
  return sum;
}

// One warp, after chain_pages: the first value above 0 after which the search is over; n if there
// is none.
template <class Sum>
__device__ std::int32_t find_in_pages(std::int32_t n, double divisor, const Search& search) {
  const WideScratch& s = team_room().scratch;
  using Value = typename Sum::Value;
  const std::int32_t n_pages = (n + kPage - 1) / kPage;
  std::int32_t n_before = 0;  // pages that begin before
  for (std::int32_t i = lane(); i < n_pages; i += 32) {
    n_before += search.found(s.page_start[i]) ? 0 : 1;
  }
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
  n_before = warp_reduce(n_before, [](std::int32_t a, std::int32_t b) { return a + b; });
#else
  n_before = __reduce_add_sync(kAllLanes, n_before);
#endif
#pragma unroll 1
  for (std::int32_t page = max(n_before - 1, 0); page < n_pages; ++page) {
    auto sum = static_cast<Value>(s.page_start[page]);
    bring_page(page);
    std::int32_t found = kPage;
    const auto* fours = reinterpret_cast<const float4*>(team_room().page);
    const auto add = [&](std::int32_t i, float x) {
      sum = Sum::add(sum, x, divisor);
      const bool is_over = x > 0.0F && search.found(static_cast<double>(sum));
      found = is_over ? min(found, i) : found;
    };
#pragma unroll 4
    for (std::int32_t i = 0; i < kPage; i += 4) {
      const float4 x = fours[i / 4];
      add(i, x.x), add(i + 1, x.y), add(i + 2, x.z), add(i + 3, x.w);
    }
    if (found < kPage) return page * kPage + found;
  }
  return n;
}

// The plans of the pages in the leading block's own memory, if they fit.
template <class Sum>
__device__ const GrowthPlan<Sum>* nearer_plans(Team& team, std::int32_t n) {
  const GrowthPlan<Sum>* plans = growth_plans<Sum>(team_room().scratch);
  constexpr std::int32_t kWords = sizeof(GrowthPlan<Sum>) / sizeof(std::uint32_t);
  const std::int32_t n_words = (n + kPage - 1) / kPage * kWords;
  if (team.rank != 0 || n_words > 2 * kRoom) return plans;
  const auto* from = reinterpret_cast<const std::uint32_t*>(plans);
  auto* to = reinterpret_cast<std::uint32_t*>(team_room().words);
  for (std::int32_t i = threadIdx.x; i < n_words; i += kThreads) to[i] = from[i];
  __syncthreads();
  return reinterpret_cast<const GrowthPlan<Sum>*>(to);
}

// The sum of the first n values, one after the other, n >= 1, and where the search ends, on every
// thread. kReachesShare: the target is a share of the sum. The rest of the last page must be 0; for
// many values page_sum must be filled.
template <class Sum>
__device__ __noinline__ OrderedResult ordered_sum(Team& team, std::int32_t n, double divisor,
                                                  Search search) {
  const GrowthPlan<Sum>* plans = nullptr;
  if (n > kMinPlanned) {
    plan_growth<Sum>(team, n, divisor);
    plans = nearer_plans<Sum>(team, n);
  }
  std::uint64_t* words = team.next_broadcast();
  if (team.leads()) {
    const double sum = chain_pages<Sum>(n, divisor, plans);
    if (search.kind == Search::kReachesShare) search.target *= sum;
    const std::int32_t found =
        search.kind == Search::kNone ? n : find_in_pages<Sum>(n, divisor, search);
    if (lane() == 0) {
      __builtin_memcpy(&words[0], &sum, sizeof(sum));
      words[1] = static_cast<std::uint64_t>(found);
    }
  }
  team.sync();
  OrderedResult result{0.0, static_cast<std::int32_t>(words[1])};
  const std::uint64_t word = words[0];
  __builtin_memcpy(&result.sum, &word, sizeof(word));
  return result;
}

}  // namespace unpaced
