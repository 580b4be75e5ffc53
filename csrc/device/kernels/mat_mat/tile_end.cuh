// Where a part's sums of a tile go: to what the tile's other parts have left, and from there, once
// the last one has come, to the product's rows, with what is added or the activation.
#pragma once

#include <cstdint>

#include "device/kernels/mat_mat/task.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/mat_vec/gated_unit.cuh"

namespace unpaced::mat_mat {

inline constexpr int kSlices = 8;  // of 16 rows of a tile

__device__ __forceinline__ int warp_slice() { return static_cast<int>(threadIdx.x / 32) % kSlices; }
template <int kEights>
__device__ __forceinline__ int first_eight() {
  return static_cast<int>(threadIdx.x / 32) / kSlices * kEights;
}

template <int kMatrices, int kEights>
class TileEnd {
 public:
  using Sums = float[kMatrices][kEights][4];

  __device__ TileEnd(const Task& task, int stream, int tile)
      : task_(task), stream_(stream), tile_(tile) {}

  __device__ __forceinline__ void add_part(int part, const Sums& sums) const {
    const PartsOfTile parts(task_.matrices[stream_].division, tile_);
    if (parts.n() == 1) return write(sums);
    keep(part, part == parts.last(), sums);
    if (is_last_of(parts.n())) add_up(task_, stream_, tile_, parts);
  }

 private:
  using Left = float4[kMatrices][kEights];

  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static bool has(const Task& task, int e) {
    return first_eight<kEights>() + e < task.n_eights;
  }

  // What one part has left of one matrix's tile: of its end, or of its beginning or middle.
  __device__ float4* left(int m, int e, int part, bool ends_tile) const {
    const int n_parts = static_cast<int>(gridDim.x);
    const int place = ((stream_ + m) * n_parts + part) * 2 + (ends_tile ? 1 : 0);
    return reinterpret_cast<float4*>(task_.sums) +
           ((place * kSlices + warp_slice()) * task_.n_eights + first_eight<kEights>() + e) * 32 +
           lane();
  }

  __device__ __forceinline__ void keep(int part, bool ends_tile, const Sums& sums) const {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        const auto& s = sums[m][e];
        if (has(task_, e)) *left(m, e, part, ends_tile) = make_float4(s[0], s[1], s[2], s[3]);
      }
    }
  }
  __device__ void get(int part, bool ends_tile, Left& to) const {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int e = 0; e < kEights; ++e)
        to[m][e] = has(task_, e) ? __ldcg(left(m, e, part, ends_tile)) : float4{};
    }
  }

  // Nobody waits for the others: who comes last has what all have left.
  __device__ __forceinline__ bool is_last_of(int n_parts) const {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    std::uint32_t* arrivals =
        task_.arrivals + (task_.matrices[stream_].first_tile + tile_) * kWarps + warp;
    __syncwarp();
    std::uint32_t n_before = 0;
    if (lane() == 0) n_before = count_arrival(arrivals);
    n_before = __shfl_sync(0xffffffff, n_before, 0);
    if (static_cast<int>(n_before) + 1 < n_parts) return false;
    if (lane() == 0) *arrivals = 0;
    __syncwarp();
    return true;
  }

  // As ggml's second kernel: the sum of the tile's earlier parts, from the last to the first, is
  // added to that of its end. Several parts' are under way at once, each from the second cache.
  // A function of its own: its registers are not the multiplication's.
  __device__ __noinline__ static void add_up(const Task& task, int stream, int tile,
                                             PartsOfTile parts) {
    constexpr int kAtOnce = kMatrices * kEights < 8 ? 8 / (kMatrices * kEights) : 1;
    const TileEnd end(task, stream, tile);
    Sums earlier = {};
    for (int n = parts.n() - 1; n > 0; n -= kAtOnce) {
      Left left[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (i < n) end.get(parts[n - 1 - i], false, left[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) add(left[i], earlier);
    }
    Left of_end;
    end.get(parts.last(), true, of_end);
    add(of_end, earlier);
    end.write(earlier);
  }
  // What is missing is +0, which changes no sum that begins with +0.
  __device__ static void add(const Left& left, Sums& to) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        to[m][e][0] += left[m][e].x;
        to[m][e][1] += left[m][e].y;
        to[m][e][2] += left[m][e].z;
        to[m][e][3] += left[m][e].w;
      }
    }
  }

  __device__ __forceinline__ void write(const Sums& sums) const {
    const TaskMatrix& to = task_.matrices[stream_ + kMatrices - 1];
    // Before anything is written: a compiler cannot know that the two are not one memory.
    Sums added = {};
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      if (task_.matrices[stream_ + m].added != nullptr) get_added(stream_ + m, added[m]);
    }
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!is_there(to, e, i)) continue;
        float value = with_added(stream_, sums[0][e][i], added[0][e][i]);
        if constexpr (kMatrices == 2) {
          const float up = with_added(stream_ + 1, sums[1][e][i], added[1][e][i]);
          value = mat_vec::gated(up, value, task_.glu, task_.glu_limit);
        }
        to.out[column_of(e, i) * to.out_stride + row_of(i)] = value;
      }
    }
  }
  __device__ int row_of(int i) const {
    return tile_ * kTileRows + 16 * warp_slice() + lane() / 4 + 8 * (i / 2);
  }
  __device__ static int column_of(int e, int i) {
    return kRecordColumns * (first_eight<kEights>() + e) + 2 * (lane() % 4) + i % 2;
  }
  __device__ bool is_there(const TaskMatrix& matrix, int e, int i) const {
    return column_of(e, i) < task_.n_columns && row_of(i) < matrix.n_rows;
  }
  __device__ void get_added(int matrix, float (&to)[kEights][4]) const {
    const TaskMatrix& of = task_.matrices[matrix];
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (is_there(of, e, i)) to[e][i] = of.added[column_of(e, i) * of.added_stride + row_of(i)];
      }
    }
  }
  // Nothing is not +0: -0 stays.
  __device__ float with_added(int matrix, float sum, float added) const {
    return task_.matrices[matrix].added == nullptr ? sum : sum + added;
  }

  const Task& task_;
  int stream_, tile_;
};

}  // namespace unpaced::mat_mat
