// The kernel of products by tensor cores (tile_work.h), for compute 9.0 and later.
#pragma once

#include "device/kernels/mat_vec/block/tile_work.h"
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/mat_vec/tile_place.cuh"

namespace unpaced::mat_vec {

template <class Shape>
__global__ void __launch_bounds__(kTileThreads, 1) tile_kernel(const __grid_constant__ Task task) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ __align__(8) StageBarriers stages;
  __shared__ __align__(8) TileBarriers barriers;
  TilePlace place(shared, stages, barriers, blockIdx.x, gridDim.x);
  TileWork<Shape, TilePlace>(task, place).run();
#endif
}

// kWarps: ggml's for up to four columns; for more it has half as many.
template <class Format, int kWarps>
void launch_tiles(const Plan& plan, const Card& card, cudaStream_t stream) {
  const auto kernel = plan.warps == kWarps ? tile_kernel<TileShape<Format, kWarps>>
                                           : tile_kernel<TileShape<Format, kWarps / 2>>;
  allow_shared(kernel, card);
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(plan.n_thread_blocks)),
          .block = dim3(kTileThreads),
          .shared_bytes = static_cast<std::size_t>(plan.shared_bytes)},
         card, stream, plan.task);
}

}  // namespace unpaced::mat_vec
