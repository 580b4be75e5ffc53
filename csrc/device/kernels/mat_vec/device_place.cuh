// The place of a mat-vec's block on the GPU (product.h).
#pragma once

#include <cstdint>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_vec/block/product.h"
#include "device/kernels/mat_vec/gated_unit.cuh"
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

#if __CUDA_ARCH__ >= 900
  static constexpr bool kHasProducer = true;
#else
  static constexpr bool kHasProducer = false;
#endif
  __device__ __forceinline__ bool is_producer() const { return threadIdx.x >= kBlockThreads; }

  // `readers` tell that a stage is read; only where there is a producer.
  __device__ __forceinline__ void prepare_ring(int, int n_stages, int rows, int team_warps,
                                               int readers = 1) {
#if __CUDA_ARCH__ >= 800
    // Each row's lane announces its bytes, or each thread of the team its copies.
#if __CUDA_ARCH__ >= 900
    const int arrivals = rows;
#else
    const int arrivals = kLanes * team_warps;
#endif
    const int n = kTeamsMax / team_warps * n_stages;
    if (static_cast<int>(threadIdx.x) < n) {
      const int team = threadIdx.x / n_stages, stage = threadIdx.x % n_stages;
      begin_barrier(&barriers_.of[team][stage], arrivals);
      begin_barrier(&barriers_.free[team][stage], readers);
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

  // All threads but the producer's.
  __device__ __forceinline__ void meet_block() const {
    asm volatile("bar.sync %0, %1;" ::"n"(kBlockBarrier), "n"(kBlockThreads) : "memory");
  }

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

  // The producer's: waits until the team has read what was in the stage before.
  __device__ __forceinline__ void await_free(int team, std::int32_t stage,
                                             std::uint32_t parity) const {
    await_barrier(&barriers_.free[team][stage], parity);
  }
  // The team's: it has read it.
  __device__ __forceinline__ void free_stage(int team, std::int32_t stage) const {
#if __CUDA_ARCH__ >= 900
    arrive(&barriers_.free[team][stage]);
#endif
  }

  static constexpr int kTeams = kTeamsMax;

  // Of the producer's lanes.
  __device__ __forceinline__ bool any(bool one) const { return __any_sync(0xffffffffU, one); }

  // Slices of rows of all teams, for the producer: lane i has the place of team i / kRows's row
  // i % kRows, if it has one. Rings of n_stages stages of kRows slots each lie one behind the
  // other.
  template <int kRows, int kTeams, bool kIsAligned>
  __device__ __forceinline__ void fetch_rows(bool has, int lane, std::int32_t stage,
                                             std::int32_t n_stages, const std::uint8_t* from,
                                             std::int32_t bytes, std::uint8_t* rings,
                                             std::int32_t slot_bytes) const {
#if __CUDA_ARCH__ >= 900
    const Lines lines =
        kIsAligned ? Lines{from, static_cast<std::uint32_t>(bytes)} : lines_of(from, bytes);
    if (has) announce(&barriers_.of[lane / kRows][stage], lines.bytes);
    const unsigned with_row = __ballot_sync(0xffffffffU, has);
    // A copy is one instruction of the warp, with the same registers for all of it. Some at once:
    // what a lane tells the others takes its time.
    constexpr int kAtOnce = 4;
    static_assert(kTeams * kRows % kAtOnce == 0);
#pragma unroll 1
    for (int first = 0; first < kTeams * kRows; first += kAtOnce) {
      unsigned long long begins[kAtOnce];
      std::uint32_t n_bytes[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        begins[k] =
            __shfl_sync(0xffffffffU, reinterpret_cast<unsigned long long>(lines.begin), first + k);
        n_bytes[k] = kIsAligned ? lines.bytes : __shfl_sync(0xffffffffU, lines.bytes, first + k);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int i = first + k, team = i / kRows;
        copy_once(with_row >> i & 1, begins[k], n_bytes[k],
                  rings + ((team * n_stages + stage) * kRows + i % kRows) * slot_bytes,
                  &barriers_.of[team][stage]);
      }
    }
#endif
  }

  // Lane r, and each kRows-th behind it, has the place that row r is fetched from.
  // kIsAligned: that place and the bytes are multiples of 16.
  template <int kRows, int kTeam, bool kIsAligned, class To>
  __device__ __forceinline__ void fetch(int team, int warp, int lane, std::int32_t slot,
                                        std::int32_t bytes, const std::uint8_t* from, To to) const {
#if __CUDA_ARCH__ >= 900
    if (warp == 0 && lane < kRows)
      unpaced::mat_vec::fetch_row(
          &barriers_.of[team][slot],
          kIsAligned ? Lines{from, static_cast<std::uint32_t>(bytes)} : lines_of(from, bytes),
          to(lane));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto row = reinterpret_cast<const std::uint8_t*>(
          __shfl_sync(0xffffffffU, reinterpret_cast<unsigned long long>(from), r));
      unpaced::mat_vec::fetch_row(lines_of(row, bytes), to(r), warp * kLanes + lane,
                                  kTeam * kLanes);
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
  static constexpr int kBlockBarrier = 1 + kTeamsMax;  // teams have those before

  std::uint8_t* shared_;
  StageBarriers& barriers_;
  int block_, n_blocks_;
};

}  // namespace unpaced::mat_vec
