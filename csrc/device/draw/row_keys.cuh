// Logits and tokens as 64-bit keys, distinct and greater for the better token. Device code of
// sample_kernels.cu.
#pragma once

#include "device/draw/cluster_team.cuh"

namespace unpaced {

// Logits first (-0 equals +0), then the lower token.
__device__ inline std::uint64_t key_of(float logit, std::int32_t token) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0F);
  const std::uint32_t ordered = (bits & 0x80000000U) != 0U ? ~bits : bits | 0x80000000U;
  return static_cast<std::uint64_t>(ordered) << 32 | (0xffffffffU - static_cast<unsigned>(token));
}

__device__ inline std::uint32_t ordered_logit(float logit) {
  return static_cast<std::uint32_t>(key_of(logit, 0) >> 32);
}

__device__ inline float logit_of(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  return __uint_as_float((ordered & 0x80000000U) != 0U ? ordered & 0x7fffffffU : ~ordered);
}

__device__ inline std::int32_t token_of(std::uint64_t key) {
  return static_cast<std::int32_t>(0xffffffffU - static_cast<std::uint32_t>(key));
}

__device__ inline std::uint64_t greater(std::uint64_t a, std::uint64_t b) { return a > b ? a : b; }

__device__ inline std::uint64_t warp_greatest(std::uint64_t key) {
  for (int offset = 16; offset > 0; offset /= 2) {
    key = greater(key, __shfl_xor_sync(kAllLanes, key, offset));
  }
  return key;
}

// Sorts n keys of shared memory, at most a fourth as many as threads, the greatest first: counts
// for each how many are greater. The whole block.
__device__ inline void rank_keys(std::uint64_t* keys, std::int32_t n) {
  const auto i = static_cast<std::int32_t>(threadIdx.x / 4);
  const std::uint64_t mine = i < n ? keys[i] : 0;
  std::int32_t rank = 0;
#pragma unroll 4
  for (std::int32_t j = threadIdx.x % 4; j < n; j += 4) rank += keys[j] > mine ? 1 : 0;
  rank += __shfl_xor_sync(kAllLanes, rank, 1);
  rank += __shfl_xor_sync(kAllLanes, rank, 2);
  __syncthreads();
  if (i < n && threadIdx.x % 4 == 0) keys[rank] = mine;
  __syncthreads();
}

// Sorts n keys of shared memory, the greatest first: a bitonic network. They may be overwritten up
// to the next power of two. The whole block.
__device__ inline void sort_keys(std::uint64_t* keys, std::int32_t n) {
  std::int32_t n_padded = 1;
  while (n_padded < n) n_padded *= 2;
  for (std::int32_t i = n + static_cast<std::int32_t>(threadIdx.x); i < n_padded; i += kThreads) {
    keys[i] = 0;
  }
  __syncthreads();
  for (std::int32_t size = 2; size <= n_padded; size *= 2) {
    for (std::int32_t stride = size / 2; stride > 0; stride /= 2) {
      for (std::int32_t pair = threadIdx.x; pair < n_padded / 2; pair += kThreads) {
        const std::int32_t low = 2 * pair - (pair & (stride - 1));
        const std::uint64_t x = keys[low];
        const std::uint64_t y = keys[low + stride];
        if ((x < y) == ((low & size) == 0)) {
          keys[low] = y;
          keys[low + stride] = x;
        }
      }
      __syncthreads();
    }
  }
}

}  // namespace unpaced
