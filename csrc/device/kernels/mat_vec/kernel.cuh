// The mat-vec kernel (product.h), and how its builds are found and launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_vec/block/product.h"
#include "device/kernels/mat_vec/device_place.cuh"
#include "device/kernels/mat_vec/formats.h"
#include "device/kernels/mat_vec/plan.h"

namespace unpaced::mat_vec {

#if __CUDA_ARCH__ >= 900
template <class Shape>
inline constexpr int kThreadsOf = kBlockThreads + (Shape::kProducer ? kProducerThreads : 0);
#else
template <class Shape>
inline constexpr int kThreadsOf = kBlockThreads;
#endif

// Two blocks a multiprocessor: 128 registers a thread, 112 with a producer; one: 255.
template <class Shape>
__global__ void __launch_bounds__(kThreadsOf<Shape>, Shape::kBlocks)
    mat_vec_kernel(const __grid_constant__ Task task) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ __align__(8) StageBarriers barriers;
  DevicePlace place(shared, barriers, blockIdx.x, gridDim.x);
  BlockWork<Shape, DevicePlace>(task, place).run();
}

// Two products of one input, in formats of their own: each has so many of the blocks.
template <class First, class Second>
__global__ void __launch_bounds__(kThreadsOf<First>, First::kBlocks)
    mat_vec_pair_kernel(const __grid_constant__ TaskPair tasks) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ __align__(8) StageBarriers barriers;
  const int n_first = tasks.n_first_blocks, block = blockIdx.x;
  if (block < n_first) {
    DevicePlace place(shared, barriers, block, n_first);
    BlockWork<First, DevicePlace>(tasks.first, place).run();
  } else {
    DevicePlace place(shared, barriers, block - n_first, gridDim.x - n_first);
    BlockWork<Second, DevicePlace>(tasks.second, place).run();
  }
}

// As much shared memory as the card has for a block, at every launch: a graph that was captured
// holds launches of several sizes, and the limit must never sink below one of them.
template <class Kernel>
void allow_shared(Kernel kernel, const Card& card) {
  cudaFuncAttributes attributes = {};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  const auto most = card.shared_bytes_max - static_cast<std::int32_t>(attributes.sharedSizeBytes);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
             "cudaFuncSetAttribute");
}

// A block's threads: code for compute 9.0 has a producer.
template <class Shape, class Kernel>
dim3 threads_of(Kernel kernel) {
  const bool has_one = Shape::kProducer && can_start_early(kernel);
  return dim3(kBlockThreads + (has_one ? kProducerThreads : 0));
}

template <class Shape>
void launch_shape(const Plan& plan, const Card& card, cudaStream_t stream) {
  const auto kernel = mat_vec_kernel<Shape>;
  allow_shared(kernel, card);
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(plan.n_thread_blocks)),
          .block = threads_of<Shape>(kernel),
          .shared_bytes = static_cast<std::size_t>(plan.shared_bytes)},
         card, stream, plan.task);
}

// Several columns. A team of warps shares them where kWide, up to four: for eight it has too few
// registers. Else a warp by itself has all of them: few of ggml's warps, whose sums it can hold.
template <class Format, int kWarps, bool kWide>
void launch_columns(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  switch (build.columns) {
    case 2:
      return launch_shape<Shape<Format, kWarps, 4, 2, kWide, 0>>(plan, card, stream);
    case 4:
      return launch_shape<Shape<Format, kWarps, 4, 4, kWide, 0>>(plan, card, stream);
    default:
      if constexpr (!kWide && HasQuads<Format>) {
        if (build.compact)
          return launch_shape<Shape<Compact<Format>, kWarps, 4, 8, false, 0>>(plan, card, stream);
      }
      if constexpr (!kWide) launch_shape<Shape<Format, kWarps, 4, 8, false, 0>>(plan, card, stream);
  }
}

// One column, and a warp by itself, which has all of ggml's warps' sums.
template <class Format, int kWarps, bool kProducer>
void launch_column(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if constexpr (kIsQuad<Format>) {
    if (build.rows == 1)
      return launch_shape<Shape<Format, kWarps, 1, 1, false, 0, kProducer>>(plan, card, stream);
  }
  if (build.rows == 2)
    return launch_shape<Shape<Format, kWarps, 2, 1, false, 0, kProducer>>(plan, card, stream);
  launch_shape<Shape<Format, kWarps, 4, 1, false, 0, kProducer>>(plan, card, stream);
}

template <class Format, int kWarps>
void launch_alone(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if constexpr (!kIsQuad<Format>) {
    if constexpr (HasQuads<Format>) {
      if (build.compact)
        return launch_shape<Shape<Compact<Format>, kWarps, 2, 8, false, 0>>(plan, card, stream);
    }
    if (build.columns == 8)
      return launch_shape<Shape<Format, kWarps, 2, 8, false, 0>>(plan, card, stream);
    if (build.columns == 4)
      return launch_shape<Shape<Format, kWarps, 4, 4, false, 0>>(plan, card, stream);
  }
  if (build.columns == 2) {
    launch_shape<Shape<Format, kWarps, 2, 2, false, 0>>(plan, card, stream);
  } else if (build.producer) {
    launch_column<Format, kWarps, true>(build, plan, card, stream);
  } else {
    launch_column<Format, kWarps, false>(build, plan, card, stream);
  }
}

// kWarps: ggml's for up to four columns. For more it has half as many, and a warp is alone, which
// it can be with all of them as well: then with as many rows as its registers have sums for.
template <class Format, int kWarps>
void launch_build(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if constexpr (HasQuads<Format>) {
    if (build.quads) return launch_build<Quad<Format>, kWarps>(build, plan, card, stream);
  }
  constexpr int kHeld = kHeldValues / Step<Format>::kValues;
  if constexpr (kIsQuad<Format>) {
    launch_alone<Format, kWarps>(build, plan, card, stream);
  } else if (build.held) {
    launch_shape<Shape<Format, kWarps, 2, 1, false, kHeld>>(plan, card, stream);
  } else if (build.wide) {
    launch_columns<Format, kWarps, true>(build, plan, card, stream);
  } else if (build.columns > 1 && plan.warps != kWarps) {
    launch_columns<Format, kWarps / 2, false>(build, plan, card, stream);
  } else {
    launch_alone<Format, kWarps>(build, plan, card, stream);
  }
}

template <class First, class Second>
void launch_shapes(const PlanPair& plans, const Card& card, cudaStream_t stream) {
  const auto kernel = mat_vec_pair_kernel<First, Second>;
  const std::int32_t shared = std::max(plans.first.shared_bytes, plans.second.shared_bytes);
  allow_shared(kernel, card);
  launch(kernel,
         {.grid = dim3(
              static_cast<unsigned>(plans.first.n_thread_blocks + plans.second.n_thread_blocks)),
          .block = threads_of<First>(kernel),
          .shared_bytes = static_cast<std::size_t>(shared)},
         card, stream, TaskPair{plans.first.task, plans.second.task, plans.first.n_thread_blocks});
}

template <class First, class Second, int kWarps, bool kWide>
void launch_column_pair(const Build& build, const PlanPair& plans, const Card& card,
                        cudaStream_t stream) {
  switch (build.columns) {
    case 2:
      return launch_shapes<Shape<First, kWarps, 4, 2, kWide, 0>,
                           Shape<Second, kWarps, 4, 2, kWide, 0>>(plans, card, stream);
    case 4:
      return launch_shapes<Shape<First, kWarps, 4, 4, kWide, 0>,
                           Shape<Second, kWarps, 4, 4, kWide, 0>>(plans, card, stream);
    default:
      if constexpr (!kWide)
        launch_shapes<Shape<First, kWarps, 4, 8, false, 0>, Shape<Second, kWarps, 4, 8, false, 0>>(
            plans, card, stream);
  }
}

// Two formats' builds of two rows, and of several columns (as launch_build).
template <class First, class Second, int kWarps>
void launch_pair(const Build& build, const PlanPair& plans, const Card& card, cudaStream_t stream) {
  if constexpr (HasQuads<First> && HasQuads<Second>) {
    if (build.quads)
      return launch_pair<Quad<First>, Quad<Second>, kWarps>(build, plans, card, stream);
  }
  if constexpr (!kIsQuad<First>) {
    if (build.wide)
      return launch_column_pair<First, Second, kWarps, true>(build, plans, card, stream);
    if (build.columns > 1 && plans.first.warps != kWarps)
      return launch_column_pair<First, Second, kWarps / 2, false>(build, plans, card, stream);
  }
  if constexpr (!kIsQuad<First>) {
    if (build.columns == 8)
      return launch_shapes<Shape<First, kWarps, 2, 8, false, 0>,
                           Shape<Second, kWarps, 2, 8, false, 0>>(plans, card, stream);
    if (build.columns == 4)
      return launch_shapes<Shape<First, kWarps, 4, 4, false, 0>,
                           Shape<Second, kWarps, 4, 4, false, 0>>(plans, card, stream);
  }
  if (build.columns == 2) {
    launch_shapes<Shape<First, kWarps, 2, 2, false, 0>, Shape<Second, kWarps, 2, 2, false, 0>>(
        plans, card, stream);
  } else if (build.producer) {
    launch_shapes<Shape<First, kWarps, 2, 1, false, 0, true>,
                  Shape<Second, kWarps, 2, 1, false, 0, true>>(plans, card, stream);
  } else if (!build.held) {
    launch_shapes<Shape<First, kWarps, 2, 1, false, 0>, Shape<Second, kWarps, 2, 1, false, 0>>(
        plans, card, stream);
  } else if constexpr (!kIsQuad<First>) {
    launch_shapes<Shape<First, kWarps, 2, 1, false, kHeldValues / Step<First>::kValues>,
                  Shape<Second, kWarps, 2, 1, false, kHeldValues / Step<Second>::kValues>>(
        plans, card, stream);
  }
}

// Of weights that are not quantised: two rows at once, whatever ggml's warps.
template <class Format, int kWarps = 8>
void launch_floats(const Plan& plan, const Card& card, cudaStream_t stream) {
  if (plan.warps == kWarps)
    launch_shape<Shape<Format, kWarps, 2, 1, false, 0>>(plan, card, stream);
  else if constexpr (kWarps > 1)
    launch_floats<Format, kWarps - 1>(plan, card, stream);
}

}  // namespace unpaced::mat_vec
