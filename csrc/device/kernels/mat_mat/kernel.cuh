// The product kernel: a block of threads a multiprocessor, which has the parts that ggml's block
// has there (task.h). Steps come into shared memory while earlier ones are multiplied. A warp has
// 16 rows of a tile and half of the columns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_mat/cursor.h"
#include "device/kernels/mat_mat/task.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/mat_vec/gated_unit.cuh"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kSlices = 8;  // of 16 rows

template <class Tile, int kMatrices, int kEights>
struct Stage {
  static constexpr int kMatrixBytes = kTileRows * Tile::kPitch;
  static constexpr int kRecordsAt = kMatrices * kMatrixBytes;
  static constexpr int kBytes = stage_bytes(Tile::kPitch, kMatrices, kEights);
  static constexpr int kNumber = n_stages(kBytes);
  static_assert(kNumber >= 2);
};

template <class Tile, int kMatrices, int kEights>
class BlockOfThreads {
  using Memory = Stage<Tile, kMatrices, kEights>;
  using Sums = float[kMatrices][kEights][4];
  static constexpr int kStages = Memory::kNumber;

 public:
  __device__ BlockOfThreads(const Task& task, std::uint8_t* shared)
      : task_(task), shared_(shared) {}

  __device__ void run() {
    let_later_kernels_start(task_.next_is_ours);
    Cursor here(task_, blockIdx.x, gridDim.x);
    Cursor ahead = here;
    for (int stage = 0; stage + 1 < kStages; ++stage) {
      if (ahead.is_done()) break;
      fetch_weights(stage, ahead);
      ahead.step();
    }
    end_group();
    await_earlier_kernels();
    ahead = here;
    for (int stage = 0; stage + 1 < kStages; ++stage) {
      if (!ahead.is_done()) {
        fetch_records(stage, ahead);
        ahead.step();
      }
      end_group();
    }
    Sums sums = {};
    for (int stage = 0; !here.is_done(); stage = (stage + 1) % kStages) {
      await_groups<kStages - 2>();
      __syncthreads();
      if (!ahead.is_done()) {
        const int free = (stage + kStages - 1) % kStages;
        fetch_weights(free, ahead);
        fetch_records(free, ahead);
        ahead.step();
      }
      end_group();
      const std::uint8_t* memory = shared_ + stage * Memory::kBytes;
      Tile::multiply_step(memory + slice() * 16 * Tile::kPitch, Memory::kMatrixBytes,
                          memory + Memory::kRecordsAt + first_eight() * BatchRecord::kBytes,
                          here.step_of_tile(), sums);
      if (here.ends_sums()) {
        end_sums(here, sums);
#pragma unroll
        for (auto& of_matrix : sums) {
#pragma unroll
          for (auto& of_eight : of_matrix) {
#pragma unroll
            for (float& sum : of_eight) sum = 0.0f;
          }
        }
      }
      here.step();
    }
    end_writes(task_.next_is_ours);
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x / 32); }
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int slice() { return warp() % kSlices; }
  __device__ static int first_eight() { return warp() / kSlices * kEights; }

  __device__ void fetch_weights(int stage, const Cursor& at) {
    std::uint8_t* memory = shared_ + stage * Memory::kBytes;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      const TaskMatrix& matrix = task_.matrices[at.stream() + m];
      const std::int64_t first = std::int64_t{at.tile()} * kTileRows;
      const std::uint8_t* tile =
          matrix.weights + first * task_.row_bytes + Tile::offset(at.step_of_tile());
      const int last = min(matrix.n_rows - static_cast<int>(first), kTileRows) - 1;
#pragma unroll
      for (int i = 0; i < kTileRows * Tile::kChunks; i += kThreads) {
        const int chunk = i + static_cast<int>(threadIdx.x);
        if (i + kThreads > kTileRows * Tile::kChunks && chunk >= kTileRows * Tile::kChunks) break;
        const int row = chunk / Tile::kChunks, piece = chunk % Tile::kChunks;
        fetch(memory + m * Memory::kMatrixBytes + row * Tile::kPitch + 16 * piece,
              tile + (min(row, last) * task_.row_bytes + 16 * piece));
      }
    }
  }

  __device__ void fetch_records(int stage, const Cursor& at) {
    const int n_bytes = task_.n_eights * BatchRecord::kBytes;
    std::uint8_t* memory = shared_ + stage * Memory::kBytes + Memory::kRecordsAt;
    const std::uint8_t* records = task_.records + std::int64_t{at.step_of_tile()} * n_bytes;
    for (int i = 16 * static_cast<int>(threadIdx.x); i < n_bytes; i += 16 * kThreads)
      fetch(memory + i, records + i);
  }

  // Of one part and one matrix: a tile's end, or its beginning or middle.
  __device__ float4* kept(int matrix, int part, bool ends_tile, int eight) const {
    const int place = ((matrix * static_cast<int>(gridDim.x) + part) * 2 + (ends_tile ? 1 : 0));
    return reinterpret_cast<float4*>(task_.sums) +
           ((place * kSlices + slice()) * task_.n_eights + eight) * 32 + lane();
  }

  __device__ void end_sums(const Cursor& at, Sums& sums) {
    const Division& division = task_.matrices[at.stream()].division;
    const int first_step = at.tile() * division.n_steps;
    const int first = division.part_of(first_step);
    const int last = division.part_of(first_step + division.n_steps - 1);
    if (first != last) {
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int e = 0; e < kEights; ++e) {
          if (first_eight() + e >= task_.n_eights) continue;
          const auto& s = sums[m][e];
          *kept(at.stream() + m, at.part(), at.part() == last, first_eight() + e) =
              make_float4(s[0], s[1], s[2], s[3]);
        }
      }
      // Where there are more parts than steps some have none.
      const int n_parts = min(last - first + 1, division.n_steps);
      if (!is_last_of(n_parts, at)) return;
      add_parts(division, at, first, last, sums);
    }
    write(at, sums);
  }

  // Nobody waits for the others: who comes last has what all have made.
  __device__ bool is_last_of(int n_parts, const Cursor& at) const {
    __threadfence();
    __syncwarp();
    std::uint32_t* arrivals =
        task_.arrivals + (task_.matrices[at.stream()].first_tile + at.tile()) * kWarps + warp();
    std::uint32_t n_before = 0;
    if (lane() == 0) n_before = atomicAdd(arrivals, 1);
    n_before = __shfl_sync(0xffffffff, n_before, 0);
    if (static_cast<int>(n_before) + 1 < n_parts) return false;
    if (lane() == 0) *arrivals = 0;
    __threadfence();
    return true;
  }

  // As ggml's second kernel: the sum of the tile's earlier parts, from the last to the first, is
  // added to that of its end.
  __device__ void add_parts(const Division& division, const Cursor& at, int first, int last,
                            Sums& sums) const {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        if (first_eight() + e >= task_.n_eights) continue;
        const int matrix = at.stream() + m, eight = first_eight() + e;
        float4 earlier = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int part = last - 1; part >= first; --part) {
          if (division.first(part) == division.first(part + 1)) continue;
          const float4 one = __ldcg(kept(matrix, part, false, eight));
          earlier.x += one.x;
          earlier.y += one.y;
          earlier.z += one.z;
          earlier.w += one.w;
        }
        const float4 end = __ldcg(kept(matrix, last, true, eight));
        sums[m][e][0] = end.x + earlier.x;
        sums[m][e][1] = end.y + earlier.y;
        sums[m][e][2] = end.z + earlier.z;
        sums[m][e][3] = end.w + earlier.w;
      }
    }
  }

  __device__ void write(const Cursor& at, const Sums& sums) const {
    const TaskMatrix& to = task_.matrices[at.stream() + kMatrices - 1];
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = kRecordColumns * (first_eight() + e) + 2 * t + i % 2;
        const int row = at.tile() * kTileRows + 16 * slice() + g + 8 * (i / 2);
        if (column >= task_.n_columns || row >= to.n_rows) continue;
        float value = with_added(at.stream(), sums[0][e][i], column, row);
        if constexpr (kMatrices == 2) {
          const float up = with_added(at.stream() + 1, sums[1][e][i], column, row);
          value = mat_vec::gated(up, value, task_.glu, task_.glu_limit);
        }
        to.out[column * to.out_stride + row] = value;
      }
    }
  }

  __device__ float with_added(int matrix, float sum, int column, int row) const {
    const TaskMatrix& of = task_.matrices[matrix];
    return of.added == nullptr ? sum : sum + of.added[column * of.added_stride + row];
  }

  const Task& task_;
  std::uint8_t* const shared_;
};

template <class Tile, int kMatrices, int kEights>
__global__ void __launch_bounds__(kThreads) mat_mat_kernel(const __grid_constant__ Task task) {
  extern __shared__ __align__(128) std::uint8_t shared[];
#if __CUDA_ARCH__ >= 800
  BlockOfThreads<Tile, kMatrices, kEights>(task, shared).run();
#endif
}

template <class Tile, int kMatrices, int kEights>
void launch_shape(const Task& task, const Card& card, cudaStream_t stream) {
  const auto kernel = mat_mat_kernel<Tile, kMatrices, kEights>;
  using Memory = Stage<Tile, kMatrices, kEights>;
  constexpr int kBytes = Memory::kNumber * Memory::kBytes;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "cudaFuncSetAttribute");
  launch(kernel,
         {.grid = dim3(static_cast<unsigned>(card.n_multiprocessors)),
          .block = dim3(kThreads),
          .shared_bytes = kBytes},
         card, stream, task);
}

template <class Tile>
void launch_tile(const Task& task, bool is_gated, const Card& card, cudaStream_t stream) {
  const bool is_wide = warp_eights(task.n_columns) > 1;
  if (is_gated && is_wide) return launch_shape<Tile, 2, 2>(task, card, stream);
  if (is_gated) return launch_shape<Tile, 2, 1>(task, card, stream);
  if (is_wide) return launch_shape<Tile, 1, 2>(task, card, stream);
  launch_shape<Tile, 1, 1>(task, card, stream);
}

}  // namespace unpaced::mat_mat
