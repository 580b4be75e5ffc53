// The place of a tile's block on the GPU (tile_work.h).
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/tile_work.h"
#include "device/kernels/mat_vec/device_place.cuh"
#include "device/kernels/mat_vec/weight_ring.cuh"

namespace unpaced::mat_vec {

// A warp that fetches and one that finishes.
inline constexpr std::int32_t kTileThreads = kBlockThreads + kProducerThreads + kLanes;
static_assert(kTileQuads * kLanes == kBlockThreads);

struct TileBarriers {
  unsigned long long inputs[2];  // a piece of the columns is there
  unsigned long long written;    // all quads' sums are
  unsigned long long read;       // and the finisher has read them
};

#if __CUDA_ARCH__ >= 900
class TilePlace : public DevicePlace {
 public:
  __device__ __forceinline__ TilePlace(std::uint8_t* shared, StageBarriers& stages,
                                       TileBarriers& barriers, int block, int n_blocks)
      : DevicePlace(shared, stages, block, n_blocks), barriers_(barriers) {}

  static constexpr int kTeams = 1;

  __device__ __forceinline__ void prepare_tile(int n_stages) {
    if (threadIdx.x == 0) {
      for (unsigned long long& inputs : barriers_.inputs) begin_barrier(&inputs, 1);
      begin_barrier(&barriers_.written, kTileQuads);
      begin_barrier(&barriers_.read, 1);
    }
    prepare_ring(0, n_stages, kTileRows, kTeamsMax, kTileQuads);
  }

  __device__ __forceinline__ bool is_finisher() const {
    return threadIdx.x >= kBlockThreads + kProducerThreads;
  }

  __device__ __forceinline__ void announce_inputs(int half, std::int32_t bytes) const {
    announce(&barriers_.inputs[half], bytes);
  }
  __device__ __forceinline__ void fetch_inputs(int half, const std::uint8_t* from,
                                               std::int32_t bytes, std::uint8_t* to) const {
    copy_bytes(from, bytes, to, &barriers_.inputs[half]);
  }
  __device__ __forceinline__ void await_inputs(int half, std::uint32_t parity) const {
    await_barrier(&barriers_.inputs[half], parity);
  }

  // A warp has read the stage.
  __device__ __forceinline__ void free_stage_by_warp(int team, std::int32_t stage, int lane) const {
    __syncwarp();
    if (lane == 0) free_stage(team, stage);
  }

  __device__ __forceinline__ void tell_written(int lane) const { tell(&barriers_.written, lane); }
  __device__ __forceinline__ void await_written(std::uint32_t parity) const {
    await_barrier(&barriers_.written, parity);
  }
  __device__ __forceinline__ void tell_read(int lane) const { tell(&barriers_.read, lane); }
  __device__ __forceinline__ void await_read(std::uint32_t parity) const {
    await_barrier(&barriers_.read, parity);
  }

  // The sums of eight products of F16 numbers each, in F32 (tile.h). Not volatile: what is
  // multiplied may be multiplied whenever it suits.
  __device__ __forceinline__ void multiply(float (&sums)[4], const std::uint32_t (&rows)[2],
                                           std::uint32_t columns) const {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])
        : "r"(rows[0]), "r"(rows[1]), "r"(columns), "f"(0.0F));
  }

 private:
  __device__ __forceinline__ static void tell(unsigned long long* barrier, int lane) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  }

  TileBarriers& barriers_;
};
#endif

}  // namespace unpaced::mat_vec
