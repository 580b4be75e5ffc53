// The product kernel: a block of threads a multiprocessor, which has the parts that ggml's block
// has there (task.h). Steps come into shared memory while earlier ones are multiplied. A warp has
// 16 rows of a tile and half of the columns.
#pragma once

#include <cstdint>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_mat.h"
#include "device/kernels/mat_mat/cursor.h"
#include "device/kernels/mat_mat/step_ring.cuh"
#include "device/kernels/mat_mat/task.h"
#include "device/kernels/mat_mat/tile_end.cuh"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

template <class First, class Second, int kMatrices, int kEights>
class BlockOfThreads {
  using Memory = Stage<First, Second, kMatrices, kEights>;
  using Ring = StepRing<First, Second, kMatrices, kEights>;
  using Sums = float[kMatrices][kEights][4];

 public:
  __device__ BlockOfThreads(const Task& task, const WeightMaps& maps, std::uint8_t* shared,
                            RingBarriers& barriers)
      : task_(task), ring_(task, maps, shared, barriers) {}

  __device__ void run() {
    let_later_kernels_start(task_.next_is_ours);
    Cursor here(task_, blockIdx.x, gridDim.x);
    ring_.begin(here);
    // Of an odd number of eights the second half of the warps has one less.
    if (kEights == 1 || first_eight<kEights>() + kEights <= task_.n_eights)
      multiply<kEights>(here);
    else
      multiply<kEights == 1 ? 1 : kEights - 1>(here);
    end_writes(task_.next_is_ours);
  }

 private:
  template <int kOwn>
  __device__ __forceinline__ void multiply(Cursor& here) {
    Sums sums = {};
    for (; !here.is_done(); here.step()) {
      const std::uint8_t* memory = ring_.await();
      with_tile<First, Second>(task_, here.stream(), [&](auto tile) {
        using Tile = decltype(tile);
        Tile::template multiply_step<kOwn>(
            memory + warp_slice() * 16 * Tile::kPitch, Memory::kMatrixBytes,
            memory + Memory::kRecordsAt + first_eight<kEights>() * BatchRecord::kBytes,
            here.step_of_tile(), sums);
      });
      ring_.leave();
      if (!here.ends_sums()) continue;
      TileEnd<kMatrices, kEights>(task_, here.stream(), here.tile()).add_part(here.part(), sums);
#pragma unroll
      for (auto& of_matrix : sums) {
#pragma unroll
        for (auto& of_eight : of_matrix) {
#pragma unroll
          for (float& sum : of_eight) sum = 0.0f;
        }
      }
    }
  }

  const Task& task_;
  Ring ring_;
};

template <class First, class Second, int kMatrices, int kEights>
__global__ void __launch_bounds__(kThreads, 1)
    mat_mat_kernel(const __grid_constant__ Task task, const __grid_constant__ WeightMaps maps) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ __align__(8) RingBarriers barriers;
#if __CUDA_ARCH__ >= 800
  BlockOfThreads<First, Second, kMatrices, kEights>(task, maps, shared, barriers).run();
#endif
}

template <class First, class Second, int kMatrices, int kEights>
void launch_shape(const Task& task, const Card& card, cudaStream_t stream) {
  const auto kernel = mat_mat_kernel<First, Second, kMatrices, kEights>;
  using Memory = Stage<First, Second, kMatrices, kEights>;
  const int n_bytes = n_stages(Memory::kBytes, card.code) * Memory::kBytes;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes),
             "cudaFuncSetAttribute");
  const bool has_engine = can_start_early(kernel);  // code for compute 9.0
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(card.n_multiprocessors)),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(n_bytes)},
         card, stream, task, has_engine ? weight_maps(task) : WeightMaps{});
}

template <class First, class Second, int kMatrices, int kEights = 1>
void launch_eights(const Task& task, const Card& card, cudaStream_t stream) {
  constexpr int kMost = kMatrices == 2 ? kGatedLaunchColumns : kLaunchColumns;
  if constexpr (kEights < warp_eights(kMost)) {
    if (warp_eights(task.n_columns) > kEights)
      return launch_eights<First, Second, kMatrices, kEights + 1>(task, card, stream);
  }
  launch_shape<First, Second, kMatrices, kEights>(task, card, stream);
}

template <class Tile>
void launch_tile(const Task& task, bool is_gated, const Card& card, cudaStream_t stream) {
  if (is_gated) return launch_eights<Tile, Tile, 2>(task, card, stream);
  launch_eights<Tile, Tile, 1>(task, card, stream);
}

}  // namespace unpaced::mat_mat
