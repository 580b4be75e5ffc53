// The threads that have a row, and their sum: ggml's block of threads, or the same number of them
// in the blocks of a cluster, each of which has a multiprocessor to itself.
#pragma once

#include <cstdint>

#include "device/kernels/cluster_memory.cuh"
#include "device/kernels/ggml_device.cuh"

namespace unpaced {

// Rows are numbered by blocks. A row has up to two sums.
template <int kThreads_>
class BlockTeam {
 public:
  static constexpr int kThreads = kThreads_;
  static constexpr int kBlocks = 1;
  static constexpr int kBlockThreads = kThreads;

  struct Shared {
    float sums[2][32];
  };

  __device__ explicit BlockTeam(Shared& shared) : shared_(shared) {}

  __device__ static int row() { return static_cast<int>(blockIdx.x); }
  // Which of the row's it is.
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  // Of all threads' values, for each of them; in ggml's order.
  __device__ float sum(float value) {
    return block_reduce<block_reduce_method::SUM, kThreads>(value, shared_.sums[n_sums_++]);
  }

 private:
  Shared& shared_;
  int n_sums_ = 0;
};

// From compute 9.0 on: warps send their sums to all blocks' memory, where they are added up as in
// one block.
template <int kThreads_, int kBlocks_>
class ClusterTeam {
 public:
  static constexpr int kThreads = kThreads_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr int kBlockThreads = kThreads / kBlocks;

  struct Shared {
    float sums[2][32];
    unsigned long long arrived[2];  // barriers: completed by the bytes of all warps' sums
  };

  __device__ explicit ClusterTeam(Shared& shared) : shared_(shared) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (unsigned long long& arrived : shared.arrived)
        begin_byte_barrier(&arrived, kWarps * sizeof(float));
    }
    arrive_in_cluster();
#endif
  }

  __device__ static int row() { return static_cast<int>(blockIdx.x) / kBlocks; }
  __device__ static int thread() { return rank() * kBlockThreads + static_cast<int>(threadIdx.x); }

  __device__ float sum(float value) {
#if __CUDA_ARCH__ >= 900
    if (n_sums_ == 0) await_cluster();
    value = warp_reduce_sum(value);
    float (&sums)[32] = shared_.sums[n_sums_];
    unsigned long long& arrived = shared_.arrived[n_sums_++];
    const unsigned lane = threadIdx.x % 32;
    if (lane < kBlocks)
      send(address_in(lane, sums + thread() / 32), value, address_in(lane, &arrived));
    await_bytes(&arrived);
    return warp_reduce_sum(sums[lane]);
#else
    return value;  // not launched there
#endif
  }

 private:
  static constexpr int kWarps = kThreads / 32;
  static_assert(kWarps == 32, "each lane adds a warp's sum");

  // Of the cluster's blocks, which follow one another.
  __device__ static int rank() { return static_cast<int>(blockIdx.x) % kBlocks; }

  Shared& shared_;
  int n_sums_ = 0;
};

}  // namespace unpaced
