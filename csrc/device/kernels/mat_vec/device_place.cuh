// The place of a mat-vec's block on the GPU (product.h).
#pragma once

#include <cstdint>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_vec/gated_unit.cuh"
#include "device/kernels/mat_vec/product.h"
#include "device/kernels/mat_vec/weight_ring.cuh"

namespace unpaced::mat_vec {

class DevicePlace {
 public:
  // One of `n_blocks` that do the same task.
  __device__ __forceinline__ DevicePlace(std::uint8_t* shared, StageBarriers& barriers, int block,
                                         int n_blocks)
      : shared_(shared), barriers_(barriers), block_(block), n_blocks_(n_blocks) {}

  __device__ __forceinline__ int thread() const { return threadIdx.x; }
  __device__ __forceinline__ int n_threads() const { return kBlockThreads; }
  __device__ __forceinline__ int block() const { return block_; }
  __device__ __forceinline__ int n_blocks() const { return n_blocks_; }
  __device__ __forceinline__ std::uint8_t* shared() const { return shared_; }

  __device__ __forceinline__ void prepare_ring(int, int n_stages, int rows, int team_warps) {
#if __CUDA_ARCH__ >= 800
    // Each row's lane announces its bytes, or each thread of the team its copies.
#if __CUDA_ARCH__ >= 900
    const int arrivals = rows;
#else
    const int arrivals = kLanes * team_warps;
#endif
    const int n = kTeamsMax / team_warps * n_stages;
    if (static_cast<int>(threadIdx.x) < n) {
      begin_barrier(&barriers_.of[threadIdx.x / n_stages][threadIdx.x % n_stages], arrivals);
      publish_barriers();
    }
    __syncthreads();
#endif
  }

  __device__ __forceinline__ void let_later_kernels_start(bool next_is_ours) const {
    unpaced::let_later_kernels_start(next_is_ours);
  }
  __device__ __forceinline__ void end_writes(bool next_is_ours) const {
    unpaced::end_writes(next_is_ours);
  }
  __device__ __forceinline__ void await_earlier_kernels() const {
    unpaced::await_earlier_kernels();
  }

  __device__ __forceinline__ void meet_block() const { __syncthreads(); }

  template <int kTeam>
  __device__ __forceinline__ void meet_team(int team) const {
    if constexpr (kTeam == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(kTeam * kLanes) : "memory");
  }

  template <int kTeam>
  __device__ __forceinline__ void await_stage(int team, std::int32_t slot,
                                              std::uint32_t parity) const {
    await_barrier(&barriers_.of[team][slot], parity);
  }

  // Lane r, and each kRows-th behind it, has the place that row r is fetched from.
  template <int kRows, int kTeam, class To>
  __device__ __forceinline__ void fetch(int team, int warp, int lane, std::int32_t slot,
                                        std::int32_t bytes, const std::uint8_t* from, To to) const {
#if __CUDA_ARCH__ >= 900
    if (warp == 0 && lane < kRows)
      fetch_row(&barriers_.of[team][slot], lines_of(from, bytes), to(lane));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto row = reinterpret_cast<const std::uint8_t*>(
          __shfl_sync(0xffffffffU, reinterpret_cast<unsigned long long>(from), r));
      fetch_row(lines_of(row, bytes), to(r), warp * kLanes + lane, kTeam * kLanes);
    }
    arrive_when_fetched(&barriers_.of[team][slot]);
#endif
  }

#if __CUDA_ARCH__ >= 800
  static constexpr bool kReadsInPlace = false;
#else
  static constexpr bool kReadsInPlace = true;
#endif

  // Where the bytes of a row from `offset` on are, after they were fetched to the slot.
  __device__ __forceinline__ const std::uint8_t* fetched(const std::uint8_t* row,
                                                         std::int32_t offset,
                                                         const std::uint8_t* slot) const {
#if __CUDA_ARCH__ >= 800
    return slot +
           ((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(row)) + offset) & 15);
#else
    return row + offset;
#endif
  }

  __device__ __forceinline__ float shuffle_xor(float value, int mask) const {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }

  // What the first lane of each `width` has.
  __device__ __forceinline__ float first_of(float value, int width) const {
    return __shfl_sync(0xffffffffU, value, 0, width);
  }

  __device__ __forceinline__ float glu(float up, float gate, const Task& task) const {
    return gated(up, gate, task.glu, task.glu_limit);
  }

 private:
  std::uint8_t* shared_;
  StageBarriers& barriers_;
  int block_, n_blocks_;
};

}  // namespace unpaced::mat_vec
