// The threads that work on a wide list: all blocks of the cluster (or of the grid, on cards that
// have no clusters) or, for a short list, one block. Device code of sample_kernels.cu.
#pragma once

#include <cooperative_groups.h>

#include "device/launch/card_code.h"
#include "device/state/wide_scratch.h"

namespace unpaced {

inline constexpr int kThreads = 1024;  // of each block that draws
inline constexpr int kRoom = 4096;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// At the beginning of each block's dynamic shared memory, so that its addresses are constants.
struct TeamRoom {
  std::uint64_t words[kRoom];  // for whoever needs it between two sync()s
  std::uint64_t reduction[kThreads / 32];
  alignas(16) float page[kPage];  // of the leading warp
  WideScratch scratch;
};

__device__ inline TeamRoom& team_room() {
  extern __shared__ std::uint64_t dynamic_shared[];
  return *reinterpret_cast<TeamRoom*>(dynamic_shared);
}

// Waits until all blocks of the row have arrived, and sees what they have written. They must all be
// on the card at once: a cooperative launch sees to it. The counter is never put back: as many
// blocks come every time, a power of two, so that it may overflow.
__device__ inline void sync_blocks(std::uint32_t n_blocks) {
  __syncthreads();
  if (threadIdx.x == 0) {
    auto* arrived =
        reinterpret_cast<std::uint32_t*>(team_room().scratch.broadcast + kBroadcastWords);
    __threadfence();
    const std::uint32_t before = atomicAdd(arrived, 1U);
    const std::uint32_t all = before - before % n_blocks + n_blocks;
    while (static_cast<std::int32_t>(*static_cast<volatile std::uint32_t*>(arrived) - all) < 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

// Every thread holds the same Team; calls are made by all its threads at the same place. What
// threads write to global memory the others see after sync().
struct Team {
  std::int32_t rank;            // of this block
  std::int32_t n_blocks;        // 1: this block alone
  std::int32_t turn;            // of the two sets of partial results
  std::int32_t broadcast_turn;  // of the two sets of broadcast words

  __device__ void sync() const {
    __syncwarp();  // the cluster's barrier takes a warp's arrival for all its threads'
    if (n_blocks > 1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 900
      sync_blocks(static_cast<std::uint32_t>(n_blocks));
#else
      cooperative_groups::this_cluster().sync();
#endif
    } else {
      __syncthreads();
    }
  }
  __device__ std::int32_t thread() const {
    return rank * kThreads + static_cast<std::int32_t>(threadIdx.x);
  }
  __device__ std::int32_t n_threads() const { return n_blocks * kThreads; }
  __device__ std::int32_t warp() const { return thread() / 32; }
  __device__ std::int32_t n_warps() const { return n_threads() / 32; }
  // Two words that the leading warp fills before a sync() and all may read after it.
  __device__ std::uint64_t* next_broadcast() {
    broadcast_turn ^= 1;
    return team_room().scratch.broadcast + 2 * broadcast_turn;
  }
  // The one warp that does what is left serial.
  __device__ bool leads() const { return rank == 0 && threadIdx.x < 32; }
};

__device__ inline std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32U); }

template <class T, class Combine>
__device__ T warp_reduce(T x, Combine combine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    x = combine(x, __shfl_xor_sync(kAllLanes, x, offset));
  }
  return x;
}

__device__ __noinline__ double warp_sum(double x) {
  return warp_reduce(x, [](double a, double b) { return a + b; });
}

// All threads get the combination, always made in the same order. T: eight bytes at most.
template <class T, class Combine>
__device__ T team_reduce(Team& team, T x, T neutral, Combine combine) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  const auto keep = [](std::uint64_t* to, T value) { __builtin_memcpy(to, &value, sizeof(T)); };
  const auto read = [](const std::uint64_t* from) {
    T value;
    __builtin_memcpy(&value, from, sizeof(T));
    return value;
  };
  x = warp_reduce(x, combine);
  if (lane() == 0) keep(&team_room().reduction[threadIdx.x / 32], x);
  __syncthreads();
  x = warp_reduce(read(&team_room().reduction[lane()]), combine);
  if (team.n_blocks == 1) {
    __syncthreads();
    return x;
  }
  std::uint64_t* partial = team_room().scratch.partial + team.turn * kMaxTeamBlocks;
  team.turn ^= 1;
  if (threadIdx.x == 0) keep(&partial[team.rank], x);
  team.sync();
  return warp_reduce(lane() < team.n_blocks ? read(&partial[lane()]) : neutral, combine);
}

// The first thread's value for every thread of the team. What the first block did is done by then.
__device__ inline std::uint64_t team_first(Team& team, std::uint64_t mine) {
  std::uint64_t* words = team.next_broadcast();
  if (team.thread() == 0) words[0] = mine;
  team.sync();
  return words[0];
}

template <class T>
__device__ __noinline__ T team_sum(Team& team, T x) {
  return team_reduce(team, x, T{}, [](T a, T b) { return a + b; });
}

template <class T>
__device__ __noinline__ T team_min(Team& team, T x) {
  return team_reduce(team, x, x, [](T a, T b) { return b < a ? b : a; });
}

template <class T>
__device__ __noinline__ T team_max(Team& team, T x, T lowest) {
  return team_reduce(team, x, lowest, [](T a, T b) { return a < b ? b : a; });
}

}  // namespace unpaced
