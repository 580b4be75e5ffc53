// From a row of logits to its k best candidates. Device code of sample_kernels.cu.
//
// Every logit has a 64-bit key, distinct and greater for the better token. A first kernel leaves
// the best key of each group of 32 logits; k groups whose best reaches a threshold hold k logits
// that do, so the selection reads only those groups again.
#pragma once

#include <type_traits>

#include "device/draw/row_keys.cuh"
#include "device/draw/sample_kernels.h"
#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"

namespace unpaced {

inline constexpr int kGroup = 32;
inline constexpr int kMaxRanked = 256;   // found, to sort by counting how many are better
inline constexpr int kMaxHot = 4096;     // groups that may hold a selected logit
inline constexpr int kMaxFound = kRoom;  // logits that reach the selection's threshold

// Shared memory of the drawing block beside the groups' keys.
struct RoomyShared {
  TeamRoom team;  // its words hold the keys found
  std::int32_t hot[kMaxHot];
  Candidate list[kMaxListed];
  alignas(8) Candidate scratch[kMaxListed];
  std::uint64_t best_of_warp[kThreads / 32];
  double u;      // the draw's number of the random stream
  double total;  // of a block's sum
  std::int32_t n_hot;
  std::int32_t n_found;
  std::int32_t first;  // the lowest index of a search
};

// The same for 64 KiB: the hot groups are done with when the chain begins to need its scratch.
struct CompactShared {
  TeamRoom team;
  union {
    std::int32_t hot[kMaxHot];
    alignas(8) Candidate scratch[kMaxListed];
  };
  Candidate list[kMaxListed];
  std::uint64_t best_of_warp[kThreads / 32];
  double u;
  double total;
  std::int32_t n_hot;
  std::int32_t n_found;
  std::int32_t first;
};
static_assert(sizeof(CompactShared) <= 64 * 1024);

using Shared = std::conditional_t<kIsCompact, CompactShared, RoomyShared>;

// How many of the block's keys reach `ordered`; each thread brings those of keys[thread + i *
// 1024]. The whole block; the same answer for every thread.
__device__ inline std::int32_t count_groups(const std::uint64_t* keys, std::int32_t n,
                                            std::uint32_t ordered) {
  std::int32_t count = 0;
  for (std::int32_t base = 0; base < n; base += kThreads) {
    const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x);
    count += __syncthreads_count(i < n && static_cast<std::uint32_t>(keys[i] >> 32) >= ordered);
  }
  return count;
}

// A threshold that at least k logits reach and few more. The whole block.
__device__ inline std::uint32_t group_threshold(const std::uint64_t* keys, std::int32_t n,
                                                std::int32_t k, float best) {
  if (n <= k) return 0;
  std::uint64_t mine = 0;  // the best of the thread's groups
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) mine = greater(mine, keys[i]);
  const auto mine_ordered = static_cast<std::uint32_t>(mine >> 32);
  // k threads that reach it will do as well; many threads for few logits are cheaper to count.
  const bool by_thread = k <= kThreads / 4 && n >= kThreads;
  const auto count = [&](std::uint32_t ordered) {
    return by_thread ? __syncthreads_count(mine_ordered >= ordered)
                     : count_groups(keys, n, ordered);
  };
  const std::int32_t enough = k + k / 2 + 4;
  std::uint32_t high = ordered_logit(best);
  std::uint32_t low = high;
  std::int32_t n_low = count(low);
  for (float step = 1.0F; n_low < k; step *= 2.0F) {
    high = low;
    const float next = best - step;
    low = next < -kMaxFloat || next != next ? 0U : ordered_logit(next);
    n_low = count(low);
  }
  while (n_low > enough && high - low > 1U) {
    const std::uint32_t middle = low + (high - low) / 2U;
    const std::int32_t n_middle = count(middle);
    if (n_middle >= k) {
      low = middle;
      n_low = n_middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Fills shared.team.words with the keys of all logits that reach the key. False: there are too
// many.
__device__ inline bool collect(const StepRow& row, const std::uint64_t* keys, Shared& shared,
                               std::uint64_t threshold) {
  const std::int32_t n = (row.n_vocab + kGroup - 1) / kGroup;
  __syncthreads();
  if (threadIdx.x == 0) shared.n_hot = shared.n_found = 0;
  __syncthreads();
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) {
    if (keys[i] < threshold) continue;
    const std::int32_t slot = atomicAdd(&shared.n_hot, 1);
    if (slot < kMaxHot) shared.hot[slot] = i;
  }
  __syncthreads();
  if (shared.n_hot > kMaxHot) return false;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32U);
  constexpr std::int32_t kWarps = kThreads / 32;
  constexpr std::int32_t kAtOnce = 2;  // groups on their way to a warp
  for (std::int32_t first = threadIdx.x / 32; first < shared.n_hot; first += kAtOnce * kWarps) {
    std::uint64_t key[kAtOnce];
#pragma unroll
    for (std::int32_t j = 0; j < kAtOnce; ++j) {
      const std::int32_t i = first + j * kWarps;
      const std::int32_t token = i < shared.n_hot ? shared.hot[i] * kGroup + lane : row.n_vocab;
      key[j] = token < row.n_vocab ? key_of(row.logits[token], token) : 0U;
    }
#pragma unroll
    for (std::int32_t j = 0; j < kAtOnce; ++j) {
      const bool reaches = key[j] != 0U && key[j] >= threshold;
      const std::uint32_t lanes = __ballot_sync(kAllLanes, reaches);
      if (lanes == 0U) continue;
      std::int32_t base = 0;
      if (lane == 0) base = atomicAdd(&shared.n_found, __popc(lanes));
      base = __shfl_sync(kAllLanes, base, 0);
      const std::int32_t slot = base + __popc(lanes & ((1U << lane) - 1U));
      if (reaches && slot < kMaxFound) shared.team.words[slot] = key[j];
    }
  }
  __syncthreads();
  return shared.n_found <= kMaxFound;
}

// The k-th best key of the row, by bisection over the keys: slow, for rows full of equal logits.
__device__ inline std::uint64_t exact_threshold(const StepRow& row, std::int32_t k) {
  std::uint64_t low = 0;
  for (std::uint64_t bit = 1ULL << 63; bit != 0U; bit >>= 1) {
    const std::uint64_t middle = low | bit;
    std::int32_t count = 0;
    for (std::int32_t base = 0; base < row.n_vocab; base += kThreads) {
      const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x);
      count += __syncthreads_count(i < row.n_vocab && key_of(row.logits[i], i) >= middle);
    }
    if (count >= k) low = middle;
  }
  return low;
}

// Adds the lowest n tokens that have -inf to the keys found: candidates too, where a row has too
// few others, as one that a grammar has masked. The whole block.
__device__ inline void collect_impossible(const StepRow& row, Shared& shared, std::int32_t n) {
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32U);
  const std::uint32_t before_lane = (1U << (threadIdx.x % 32U)) - 1U;
  const std::int32_t n_found = shared.n_found;
  std::int32_t n_added = 0;
  for (std::int32_t base = 0; base < row.n_vocab && n_added < n; base += kThreads) {
    const std::int32_t token = base + static_cast<std::int32_t>(threadIdx.x);
    const bool is_one = token < row.n_vocab && row.logits[token] == -kInfinity;
    const std::uint32_t lanes = __ballot_sync(kAllLanes, is_one);
    if (threadIdx.x % 32U == 0) shared.best_of_warp[warp] = __popc(lanes);
    const std::int32_t n_here = __syncthreads_count(is_one);
    auto i = n_added + static_cast<std::int32_t>(__popc(lanes & before_lane));
    for (std::int32_t w = 0; w < warp; ++w) i += static_cast<std::int32_t>(shared.best_of_warp[w]);
    if (is_one && i < n) shared.team.words[n_found + i] = key_of(-kInfinity, token);
    n_added += n_here;
    __syncthreads();
  }
  if (threadIdx.x == 0) shared.n_found = n_found + min(n_added, n);
  __syncthreads();
}

// Fills shared.team.words with the keys of the k best and of few more. The whole block.
__device__ inline void collect_best(const StepRow& row, const std::uint64_t* keys, Shared& shared,
                                    std::int32_t k, float best) {
  const std::int32_t n = (row.n_vocab + kGroup - 1) / kGroup;
  const std::uint32_t impossible = ordered_logit(-kInfinity);
  const std::uint32_t threshold = group_threshold(keys, n, k, best);
  if (threshold > impossible) {
    if (collect(row, keys, shared, static_cast<std::uint64_t>(threshold) << 32)) return;
  } else if (collect(row, keys, shared, static_cast<std::uint64_t>(impossible + 1U) << 32)) {
    // Fewer groups than k have a token that may come.
    if (shared.n_found < k) collect_impossible(row, shared, k - shared.n_found);
    return;
  }
  collect(row, keys, shared, exact_threshold(row, k));
}

// The k best candidates in descending order into shared.list; returns how many. The whole block.
__device__ inline std::int32_t select_top(const StepRow& row, const std::uint64_t* keys,
                                          Shared& shared, std::int32_t k, std::uint64_t best) {
  if (k == 1) {
    if (threadIdx.x == 0) shared.list[0] = {token_of(best), row.logits[token_of(best)], 0.0F};
    __syncthreads();
    return 1;
  }
  collect_best(row, keys, shared, k, logit_of(best));
  const std::int32_t n_found = shared.n_found;
  if (n_found > kMaxRanked) {
    sort_keys(shared.team.words, n_found);
    for (std::int32_t i = threadIdx.x; i < min(n_found, k); i += kThreads) {
      const std::int32_t token = token_of(shared.team.words[i]);
      shared.list[i] = {token, row.logits[token], 0.0F};
    }
    __syncthreads();
    return min(n_found, k);
  }
  for (std::int32_t i = threadIdx.x; i < n_found; i += kThreads) {
    const std::uint64_t mine = shared.team.words[i];
    std::int32_t rank = 0;
#pragma unroll 8
    for (std::int32_t j = 0; j < n_found; ++j) rank += shared.team.words[j] > mine ? 1 : 0;
    if (rank < k) shared.list[rank] = {token_of(mine), row.logits[token_of(mine)], 0.0F};
  }
  __syncthreads();
  return min(n_found, k);
}

}  // namespace unpaced
