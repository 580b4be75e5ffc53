// The kernel of products by tensor cores (tile_work.h), for compute 9.0 and later.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/kernels/mat_vec/block/tensor_format.h"
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

// Two products of one input, as mat_vec_pair_kernel's.
template <class First, class Second>
__global__ void __launch_bounds__(kTileThreads, 1)
    tile_pair_kernel(const __grid_constant__ TaskPair tasks) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ __align__(8) StageBarriers stages;
  __shared__ __align__(8) TileBarriers barriers;
  const int n_first = tasks.n_first_blocks, block = blockIdx.x;
  if (block < n_first) {
    TilePlace place(shared, stages, barriers, block, n_first);
    TileWork<First, TilePlace>(tasks.first, place).run();
  } else {
    TilePlace place(shared, stages, barriers, block - n_first, gridDim.x - n_first);
    TileWork<Second, TilePlace>(tasks.second, place).run();
  }
#endif
}

template <class Kernel, class Tasks>
void launch_tile_kernel(Kernel kernel, std::int32_t n_blocks, std::int32_t shared_bytes,
                        const Tasks& tasks, const Card& card, cudaStream_t stream) {
  allow_shared(kernel, card);
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(n_blocks)),
          .block = dim3(kTileThreads),
          .shared_bytes = static_cast<std::size_t>(shared_bytes)},
         card, stream, tasks);
}

// kWarps: ggml's for up to four columns; for more it has half as many.
template <class Format, class Record, int kWarps>
void launch_tiles(const Plan& plan, const Card& card, cudaStream_t stream) {
  using Tensor = typename TensorFormat<Format, Record>::Type;
  const auto kernel = plan.warps == kWarps ? tile_kernel<TileShape<Tensor, kWarps>>
                                           : tile_kernel<TileShape<Tensor, kWarps / 2>>;
  launch_tile_kernel(kernel, plan.n_thread_blocks, plan.shared_bytes, plan.task, card, stream);
}

template <class Format, int kWarps>
void launch_tiles(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if (build.compact) return launch_tiles<Format, ByteRecord, kWarps>(plan, card, stream);
  launch_tiles<Format, HalfRecord, kWarps>(plan, card, stream);
}

// Of records of halves: longer rows' products by two formats are others' (mat_vec.cpp: has_tensor).
template <class First, class Second, int kWarps>
void launch_tile_pair(const PlanPair& plans, const Card& card, cudaStream_t stream) {
  using A = typename TensorFormat<First, HalfRecord>::Type;
  using B = typename TensorFormat<Second, HalfRecord>::Type;
  const auto kernel = plans.first.warps == kWarps
                          ? tile_pair_kernel<TileShape<A, kWarps>, TileShape<B, kWarps>>
                          : tile_pair_kernel<TileShape<A, kWarps / 2>, TileShape<B, kWarps / 2>>;
  launch_tile_kernel(kernel, plans.first.n_thread_blocks + plans.second.n_thread_blocks,
                     std::max(plans.first.shared_bytes, plans.second.shared_bytes),
                     TaskPair{plans.first.task, plans.second.task, plans.first.n_thread_blocks},
                     card, stream);
}

}  // namespace unpaced::mat_vec
