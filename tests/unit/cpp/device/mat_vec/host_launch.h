// A planned launch on the host: one block of threads after the other.
#pragma once

#include <cstddef>
#include <type_traits>

#include "device/kernels/mat_vec/block/product.h"
#include "device/kernels/mat_vec/block/tensor_format.h"
#include "device/kernels/mat_vec/block/tile_work.h"
#include "device/kernels/mat_vec/plan.h"
#include "fibers.h"
#include "host_block.h"
#include "host_tile.h"

namespace unpaced::test {

template <class Shape>
void run(const mat_vec::Plan& plan) {
  using Place = HostPlace<Shape::kProducer>;
  static Fibers fibers(HostBlock::kThreads + (Shape::kProducer ? HostBlock::kProducerThreads : 0));
  for (int block = 0; block < plan.n_thread_blocks; ++block) {
    HostBlock threads(fibers, block, plan.n_thread_blocks,
                      static_cast<std::size_t>(plan.shared_bytes));
    fibers.run([&](int thread) {
      Place place(threads, thread);
      mat_vec::BlockWork<Shape, Place>(plan.task, place).run();
    });
  }
}

// The same by tensor cores.
template <class Format, int kWarps>
void run_tiles(const mat_vec::Plan& plan) {
  static Fibers fibers(HostBlock::kThreads + HostTilePlace::kBeside);
  for (int block = 0; block < plan.n_thread_blocks; ++block) {
    HostBlock threads(fibers, block, plan.n_thread_blocks,
                      static_cast<std::size_t>(plan.shared_bytes), HostTilePlace::kBeside);
    HostTile tile;
    fibers.run([&](int thread) {
      HostTilePlace place(threads, tile, thread);
      mat_vec::TileWork<mat_vec::TileShape<Format, kWarps>, HostTilePlace>(plan.task, place).run();
    });
  }
}

template <class Format>
inline constexpr bool kHasTensor =
    !std::is_void_v<typename mat_vec::TensorFormat<Format, HalfRecord>::Type>;

template <class Format, class Record, int kWarps>
void run_tiles_of(const mat_vec::Plan& plan) {
  using Tensor = typename mat_vec::TensorFormat<Format, Record>::Type;
  if (plan.warps == kWarps)
    run_tiles<Tensor, kWarps>(plan);
  else
    run_tiles<Tensor, kWarps / 2>(plan);
}

template <class Format, int kWarps>
void run_wide(const mat_vec::Build& build, const mat_vec::Plan& plan) {
  using mat_vec::Shape;
  return build.columns == 2 ? run<Shape<Format, kWarps, 4, 2, true, 0>>(plan)
                            : run<Shape<Format, kWarps, 4, 4, true, 0>>(plan);
}

template <class Format, int kWarps, bool kProducer>
void run_column(const mat_vec::Build& build, const mat_vec::Plan& plan) {
  using mat_vec::Shape;
  if constexpr (mat_vec::kIsQuad<Format>) {
    if (build.rows == 1) return run<Shape<Format, kWarps, 1, 1, false, 0, kProducer>>(plan);
  }
  return build.rows == 2 ? run<Shape<Format, kWarps, 2, 1, false, 0, kProducer>>(plan)
                         : run<Shape<Format, kWarps, 4, 1, false, 0, kProducer>>(plan);
}

// The kernels that a format's build names (kernel.cuh: launch_build).
template <class Format, int kWarps>
void run_build(const mat_vec::Build& build, const mat_vec::Plan& plan) {
  using mat_vec::Shape;
  if constexpr (kHasTensor<Format>) {
    if (build.tensor) {
      return build.compact ? run_tiles_of<Format, ByteRecord, kWarps>(plan)
                           : run_tiles_of<Format, HalfRecord, kWarps>(plan);
    }
  }
  if constexpr (mat_vec::HasQuads<Format>) {
    if (build.quads) return run_build<mat_vec::Quad<Format>, kWarps>(build, plan);
  }
  if constexpr (!mat_vec::kIsQuad<Format>) {
    constexpr int kHeld = mat_vec::kHeldValues / mat_vec::Step<Format>::kValues;
    if (build.held) return run<Shape<Format, kWarps, 2, 1, false, kHeld>>(plan);
  }
  if constexpr (mat_vec::HasQuads<Format>) {
    using mat_vec::Compact;
    if (build.compact && plan.warps != kWarps)
      return run<Shape<Compact<Format>, kWarps / 2, 4, 8, false, 0>>(plan);
    if (build.compact) return run<Shape<Compact<Format>, kWarps, 2, 8, false, 0>>(plan);
  }
  if (!build.wide && build.columns > 1) {
    if (mat_vec::kIsQuad<Format> || plan.warps == kWarps) {
      return build.columns == 2   ? run<Shape<Format, kWarps, 2, 2, false, 0>>(plan)
             : build.columns == 4 ? run<Shape<Format, kWarps, 4, 4, false, 0>>(plan)
                                  : run<Shape<Format, kWarps, 2, 8, false, 0>>(plan);
    }
    if constexpr (!mat_vec::kIsQuad<Format>) {
      return build.columns == 2   ? run<Shape<Format, kWarps / 2, 4, 2, false, 0>>(plan)
             : build.columns == 4 ? run<Shape<Format, kWarps / 2, 4, 4, false, 0>>(plan)
                                  : run<Shape<Format, kWarps / 2, 4, 8, false, 0>>(plan);
    }
  }
  if (!build.wide) {
    return build.producer ? run_column<Format, kWarps, true>(build, plan)
                          : run_column<Format, kWarps, false>(build, plan);
  }
  if constexpr (!mat_vec::kIsQuad<Format>) run_wide<Format, kWarps>(build, plan);
}

}  // namespace unpaced::test
