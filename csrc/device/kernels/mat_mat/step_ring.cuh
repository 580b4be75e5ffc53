// How steps of weights and columns come into shared memory while earlier ones are multiplied: a
// ring of stages. From compute 9.0 on one thread asks the copy engine for a tile's rows at once,
// and it alone waits for other warps; before, all threads ask for 16 bytes each.
#pragma once

#include <type_traits>

#include "device/kernels/launch.cuh"
#include "device/kernels/mat_mat/cursor.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/mat_mat/weight_map.h"
#include "device/kernels/mat_vec/weight_ring.cuh"

namespace unpaced::mat_mat {

inline constexpr int kThreads = 32 * kWarps;  // that multiply

// Of matrices in one format, or in two: First and Second.
template <class First, class Second, int kMatrices, int kEights>
struct Stage {
  static constexpr int kPitch = First::kPitch > Second::kPitch ? First::kPitch : Second::kPitch;
  static constexpr int kMatrixBytes = kTileRows * kPitch;
  static constexpr int kRecordsAt = kMatrices * kMatrixBytes;
  static constexpr int kBytes = stage_bytes(kPitch, kMatrices, kEights);
#ifdef __CUDA_ARCH__
  static constexpr int kNumber = n_stages(kBytes, __CUDA_ARCH__ / 10);
  static_assert(kNumber >= 2);
#endif
};

// Calls `work` with the tile of the format that a stream has.
template <class First, class Second, class Work>
__device__ __forceinline__ void with_tile(const Task& task, int stream, const Work& work) {
  if constexpr (std::is_same_v<First, Second>) {
    work(First());
  } else {
    if (stream < task.n_first)
      work(First());
    else
      work(Second());
  }
}

struct RingBarriers {
  unsigned long long filled[kStagesMost];
  unsigned long long free[kStagesMost];
};

#if __CUDA_ARCH__ >= 900

// A box of a matrix, whose first row and element are these.
__device__ __forceinline__ void copy_box(const WeightMap& map, int element, int row, void* to,
                                         unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(mat_vec::shared_address(to)),
      "l"(&map), "r"(element), "r"(row), "r"(mat_vec::shared_address(barrier))
      : "memory");
}

template <class First, class Second, int kMatrices, int kEights>
class StepRing {
  using Memory = Stage<First, Second, kMatrices, kEights>;
  static constexpr int kStages = Memory::kNumber;

 public:
  __device__ StepRing(const Task& task, const WeightMaps& maps, std::uint8_t* shared,
                      RingBarriers& barriers)
      : task_(task),
        maps_(maps),
        shared_(shared),
        barriers_(barriers),
        ahead_(task, blockIdx.x, gridDim.x) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        mat_vec::begin_barrier(&barriers.filled[i], 1);
        mat_vec::begin_barrier(&barriers.free[i], kWarps);
      }
      mat_vec::publish_barriers();
    }
    __syncthreads();
  }

  __device__ void begin(const Cursor& first) {
    ahead_ = first;
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages && !ahead_.is_done(); ++i, ahead_.step())
        fetch_weights(i, ahead_);
    }
    await_earlier_kernels();
    ahead_ = first;
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kStages && !ahead_.is_done(); ++i, ahead_.step()) fetch_records(i, ahead_);
  }

  // The next step, once it is there.
  __device__ const std::uint8_t* await() {
    if (threadIdx.x == 0 && !is_first_ && !ahead_.is_done()) refill();
    is_first_ = false;
    mat_vec::await_barrier(&barriers_.filled[stage_], parity_);
    return shared_ + stage_ * Memory::kBytes;
  }
  // This warp has read it.
  __device__ void leave() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mat_vec::arrive(&barriers_.free[stage_]);
    if (++stage_ == kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  // The stage before this one, once all warps have read it.
  __device__ void refill() {
    const int stage = stage_ == 0 ? kStages - 1 : stage_ - 1;
    mat_vec::await_barrier(&barriers_.free[stage], stage_ == 0 ? parity_ ^ 1 : parity_);
    fetch_weights(stage, ahead_);
    fetch_records(stage, ahead_);
    ahead_.step();
  }
  __device__ void fetch_weights(int stage, const Cursor& at) {
    with_tile<First, Second>(task_, at.stream(),
                             [&](auto tile) { fetch_weights_of<decltype(tile)>(stage, at); });
  }
  template <class Tile>
  __device__ __forceinline__ void fetch_weights_of(int stage, const Cursor& at) {
    const int n_bytes = kMatrices * kTileRows * Tile::kPitch + task_.n_eights * BatchRecord::kBytes;
    mat_vec::announce(&barriers_.filled[stage], n_bytes);
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      copy_box(maps_.of[at.stream() + m], static_cast<int>(Tile::offset(at.step_of_tile())) / 2,
               at.tile() * kTileRows, shared_ + stage * Memory::kBytes + m * Memory::kMatrixBytes,
               &barriers_.filled[stage]);
    }
  }
  __device__ void fetch_records(int stage, const Cursor& at) {
    const int n_bytes = task_.n_eights * BatchRecord::kBytes;
    mat_vec::copy_bytes(task_.records + std::int64_t{at.step_of_tile()} * task_.record_step_bytes,
                        n_bytes, shared_ + stage * Memory::kBytes + Memory::kRecordsAt,
                        &barriers_.filled[stage]);
  }

  const Task& task_;
  const WeightMaps& maps_;
  std::uint8_t* const shared_;
  RingBarriers& barriers_;
  Cursor ahead_;
  bool is_first_ = true;
  int stage_ = 0;
  std::uint32_t parity_ = 0;
};

#else

template <class First, class Second, int kMatrices, int kEights>
class StepRing {
  using Memory = Stage<First, Second, kMatrices, kEights>;
  static constexpr int kStages = Memory::kNumber;

 public:
  __device__ StepRing(const Task& task, const WeightMaps&, std::uint8_t* shared, RingBarriers&)
      : task_(task), shared_(shared), ahead_(task, blockIdx.x, gridDim.x) {}

  __device__ void begin(const Cursor& first) {
    for (int stage = 0; stage + 1 < kStages && !ahead_.is_done(); ++stage, ahead_.step())
      fetch_weights(stage, ahead_);
    end_group();
    await_earlier_kernels();
    ahead_ = first;
    for (int stage = 0; stage + 1 < kStages; ++stage) {
      if (!ahead_.is_done()) {
        fetch_records(stage, ahead_);
        ahead_.step();
      }
      end_group();
    }
  }

  __device__ const std::uint8_t* await() {
    await_groups<kStages - 2>();
    __syncthreads();
    if (!ahead_.is_done()) {
      const int free = (stage_ + kStages - 1) % kStages;
      fetch_weights(free, ahead_);
      fetch_records(free, ahead_);
      ahead_.step();
    }
    end_group();
    return shared_ + stage_ * Memory::kBytes;
  }
  __device__ void leave() { stage_ = (stage_ + 1) % kStages; }

 private:
  __device__ void fetch_weights(int stage, const Cursor& at) {
    with_tile<First, Second>(task_, at.stream(),
                             [&](auto tile) { fetch_weights_of<decltype(tile)>(stage, at); });
  }
  template <class Tile>
  __device__ __forceinline__ void fetch_weights_of(int stage, const Cursor& at) {
    std::uint8_t* memory = shared_ + stage * Memory::kBytes;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      const TaskMatrix& matrix = task_.matrices[at.stream() + m];
      const std::int64_t first = std::int64_t{at.tile()} * kTileRows;
      const std::uint8_t* tile =
          matrix.weights + first * matrix.row_bytes + Tile::offset(at.step_of_tile());
      const int last = min(matrix.n_rows - static_cast<int>(first), kTileRows) - 1;
#pragma unroll
      for (int i = 0; i < kTileRows * Tile::kChunks; i += kThreads) {
        const int chunk = i + static_cast<int>(threadIdx.x);
        if (i + kThreads > kTileRows * Tile::kChunks && chunk >= kTileRows * Tile::kChunks) break;
        const int row = chunk / Tile::kChunks, piece = chunk % Tile::kChunks;
        fetch(memory + m * Memory::kMatrixBytes + row * Tile::kPitch + 16 * piece,
              tile + (min(row, last) * matrix.row_bytes + 16 * piece));
      }
    }
  }

  __device__ void fetch_records(int stage, const Cursor& at) {
    const int n_bytes = task_.n_eights * BatchRecord::kBytes;
    std::uint8_t* memory = shared_ + stage * Memory::kBytes + Memory::kRecordsAt;
    const std::uint8_t* records =
        task_.records + std::int64_t{at.step_of_tile()} * task_.record_step_bytes;
    for (int i = 16 * static_cast<int>(threadIdx.x); i < n_bytes; i += 16 * kThreads)
      fetch(memory + i, records + i);
  }

  const Task& task_;
  std::uint8_t* const shared_;
  Cursor ahead_;
  int stage_ = 0;
};

#endif

}  // namespace unpaced::mat_mat
