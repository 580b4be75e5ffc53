// The attention kernels on the GPU, and which of them a launch takes.
#include <algorithm>

#include "device/kernels/attention/head_work.h"
#include "device/kernels/cluster_memory.cuh"
#include "device/kernels/ggml_device.cuh"
#include "device/kernels/head_attention.h"
#include "device/kernels/launch.cuh"
#include "device/kernels/rows/rounding.cuh"

namespace unpaced {
namespace {

using attention::HeadWork;
using attention::kThreads;
using attention::PartsPlace;
using attention::Shared;
using attention::Words16;

// Parts of a head that are a cluster of blocks: more are not every card's, and slower than parts
// that meet in memory.
constexpr int kClusterMost = 8;

// A head's parts in its first block's memory.
template <int kSize>
struct ClusterParts {
  PartTop tops[kClusterMost];
  float sums[kClusterMost * kSize];
  unsigned long long arrived;  // a barrier: completed by so many bytes
};

// What the places of both kernels have in common.
class WarpPlace {
 public:
  __device__ __forceinline__ int thread() const { return threadIdx.x; }
  __device__ __forceinline__ int part() const { return blockIdx.x; }

  __device__ __forceinline__ void let_later_kernels_start(bool next_is_ours) const {
    unpaced::let_later_kernels_start(next_is_ours);
  }
  __device__ __forceinline__ void await_earlier_kernels() const {
    unpaced::await_earlier_kernels();
  }
  __device__ __forceinline__ void end_writes(bool next_is_ours) const {
    unpaced::end_writes(next_is_ours);
  }
  __device__ __forceinline__ void meet_block() const { __syncthreads(); }

  __device__ __forceinline__ void prefetch(const std::uint8_t* from) const {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  }
  __device__ __forceinline__ Words16 load(const std::uint8_t* from) const {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    return {{words.x, words.y, words.z, words.w}};
  }
  __device__ __forceinline__ float shuffle_xor(float value, int mask) const {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
  __device__ __forceinline__ float shuffle(float value, int lane) const {
    return __shfl_sync(0xffffffffU, value, lane);
  }
  __device__ __forceinline__ std::uint32_t ballot(bool value) const {
    return __ballot_sync(0xffffffffU, value);
  }
  __device__ __forceinline__ float larger(float a, float b) const { return fmaxf(a, b); }
  // As -use_fast_math makes them of ggml's expf, tanhf and division.
  __device__ __forceinline__ float power(float x) const { return expf(x); }
  __device__ __forceinline__ float tanh(float x) const { return tanhf(x); }
  __device__ __forceinline__ float quotient(float a, float b) const { return a / b; }
  // Block `number` of the query's row.
  __device__ __forceinline__ void round(float value, const HeadAttention& task, int number) const {
    round_block(value, task.rounded + number,
                record_column({task.records}, task.record_column, task.n_heads * task.head_size),
                number);
  }
};

#if __CUDA_ARCH__ >= 900

// Parts meet in the memory of the cluster's first block, which adds them up when all have come.
template <int kSize>
class ClusterPlace : public WarpPlace {
 public:
  __device__ __forceinline__ ClusterPlace(Shared<kSize>& shared, ClusterParts<kSize>& parts)
      : ClusterPlace(shared, parts, blockIdx.z, gridDim.x) {}
  // Of the cluster's first n_parts blocks; the others leave. And the query's head of K and V.
  __device__ __forceinline__ ClusterPlace(Shared<kSize>& shared, ClusterParts<kSize>& parts,
                                          int shared_head, int n_parts)
      : shared_(shared), parts_(parts), shared_head_(shared_head), n_parts_(n_parts) {
    if (threadIdx.x == 0 && part() == 0) {
      begin_byte_barrier(&parts.arrived, n_parts * (kSize * sizeof(float) + sizeof(PartTop)));
    }
    arrive_in_cluster();
  }
  __device__ __forceinline__ int n_parts() const { return n_parts_; }
  __device__ __forceinline__ int shared_head() const { return shared_head_; }
  __device__ __forceinline__ int head() const { return shared_head_ * gridDim.y + blockIdx.y; }

  template <int>
  __device__ __forceinline__ Shared<kSize>& shared() const {
    return shared_;
  }
  __device__ __forceinline__ void await_first_part() const { await_cluster(); }
  __device__ __forceinline__ void leave_sum(int value, float sum) const {
    send(address_in(0, parts_.sums + part() * kSize + value), sum, address_in(0, &parts_.arrived));
  }
  __device__ __forceinline__ void leave_top(const PartTop& top) const {
    send(address_in(0, parts_.tops + part()), make_float2(top.top, top.total),
         address_in(0, &parts_.arrived));
  }
  __device__ __forceinline__ bool is_last_part() const {
    if (part() != 0) return false;
    await_bytes(&parts_.arrived);
    return true;
  }
  __device__ __forceinline__ PartsPlace parts_left() const { return {parts_.sums, parts_.tops}; }

 private:
  Shared<kSize>& shared_;
  ClusterParts<kSize>& parts_;
  const int shared_head_;
  const int n_parts_;
};

#endif

// Parts meet in the card's memory; the last one to arrive adds them up.
template <int kSize>
class CountedPlace : public WarpPlace {
 public:
  __device__ __forceinline__ CountedPlace(Shared<kSize>& shared, bool& is_last,
                                          const HeadAttention& task)
      : CountedPlace(shared, is_last, task, blockIdx.z, gridDim.x) {}
  // Of the n_parts blocks that the query has, and its head of K and V.
  __device__ __forceinline__ CountedPlace(Shared<kSize>& shared, bool& is_last,
                                          const HeadAttention& task, int shared_head, int n_parts)
      : shared_(shared),
        is_last_(is_last),
        shared_head_(shared_head),
        n_parts_(n_parts),
        arrivals_(task.arrivals + head()) {
    auto* sums = reinterpret_cast<float*>(task.scratch);
    auto* tops = reinterpret_cast<PartTop*>(sums + task.n_heads * n_parts_ * kSize);
    sums_ = sums + head() * n_parts_ * kSize;
    tops_ = tops + head() * n_parts_;
  }
  __device__ __forceinline__ int n_parts() const { return n_parts_; }
  __device__ __forceinline__ int shared_head() const { return shared_head_; }
  __device__ __forceinline__ int head() const { return shared_head_ * gridDim.y + blockIdx.y; }

  template <int>
  __device__ __forceinline__ Shared<kSize>& shared() const {
    return shared_;
  }
  __device__ __forceinline__ void await_first_part() const {}
  __device__ __forceinline__ void leave_sum(int value, float sum) const {
    __stcg(sums_ + part() * kSize + value, sum);
  }
  __device__ __forceinline__ void leave_top(const PartTop& top) const {
    __stcg(reinterpret_cast<float2*>(tops_ + part()), make_float2(top.top, top.total));
  }
  __device__ __forceinline__ bool is_last_part() const {
    __threadfence();
    __syncthreads();
    // Back to zero with the last one.
    const unsigned last = n_parts_ - 1;
    if (threadIdx.x == 0) is_last_ = atomicInc(arrivals_, last) == last;
    __syncthreads();
    __threadfence();
    return is_last_;
  }
  __device__ __forceinline__ PartsPlace parts_left() const { return {sums_, tops_}; }

 private:
  Shared<kSize>& shared_;
  bool& is_last_;
  const int shared_head_;
  const int n_parts_;
  std::uint32_t* arrivals_;
  float* sums_;
  PartTop* tops_;
};

// Blocks a multiprocessor that registers are to leave room for.
constexpr int blocks_at_once(int size) { return size == 64 ? 4 : size == 128 ? 3 : 2; }

// Block (part, query, K and V): queries that share K and V follow one another.
template <int kSize, bool kCapped>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kSize))
    attend_in_clusters(const __grid_constant__ HeadAttention task) {
#if __CUDA_ARCH__ >= 900
  __shared__ Shared<kSize> shared;
  __shared__ ClusterParts<kSize> parts;
  ClusterPlace<kSize> place(shared, parts);
  HeadWork<kSize, kCapped, ClusterPlace<kSize>>(task, place).run();
#endif
}

template <int kSize, bool kCapped>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kSize))
    attend(const __grid_constant__ HeadAttention task) {
  __shared__ Shared<kSize> shared;
  __shared__ bool is_last;
  CountedPlace<kSize> place(shared, is_last, task);
  HeadWork<kSize, kCapped, CountedPlace<kSize>>(task, place).run();
}

// Parts that have cells. The others of ggml's blocks find none, and add zero.
__host__ __device__ __forceinline__ int parts_with_cells(const HeadAttention& task) {
  const int n = (task.n_cells + kAttentionCells - 1) / kAttentionCells;
  return task.n_parts < n ? task.n_parts : n;
}

// What the query of a row would be asked for alone.
__device__ __forceinline__ HeadAttention query_of(const HeadAttention& all, int row) {
  HeadAttention one = all;
  const int window = all.windows.positions[row] / all.windows.cells;
  one.n_cells = min(all.n_cells, (window + 1) * all.windows.cells);
  one.n_parts = all.windows.parts[window];
  const std::int64_t cache = all.windows.cell_numbers[row] / all.windows.cache_cells;
  one.queries += row * all.query_row_stride;
  one.keys.data += cache * all.keys.row_stride;
  one.values.data += cache * all.values.row_stride;
  one.mask += row * all.mask_row_stride;
  const int n_values = all.n_heads * all.head_size;
  if (one.out != nullptr) one.out += row * n_values;
  if (one.rounded != nullptr) one.rounded += row * all.rounded_row_stride;
  one.record_column += row;
  one.scratch += row * all.scratch_row_bytes;
  one.arrivals += row * all.n_heads;
  return one;
}

// The same of block (part, query that shares K and V, K and V of each row's query).
template <int kSize, bool kCapped, class MakePlace>
__device__ __forceinline__ void attend_own_row(const HeadAttention& all, MakePlace make_place) {
  const int n_shared_heads = all.n_heads / gridDim.y;
  const HeadAttention task = query_of(all, blockIdx.z / n_shared_heads);
  const int n_parts = parts_with_cells(task);
  if (static_cast<int>(blockIdx.x) >= n_parts) {  // smaller than another query's
    let_later_kernels_start(task.next_is_ours);
    return await_earlier_kernels();
  }
  auto place = make_place(task, blockIdx.z % n_shared_heads, n_parts);
  HeadWork<kSize, kCapped, decltype(place)>(task, place).run();
}

template <int kSize, bool kCapped>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kSize))
    attend_rows_in_clusters(const __grid_constant__ HeadAttention all) {
#if __CUDA_ARCH__ >= 900
  __shared__ Shared<kSize> shared;
  __shared__ ClusterParts<kSize> parts;
  attend_own_row<kSize, kCapped>(all, [&](const HeadAttention&, int shared_head, int n_parts) {
    return ClusterPlace<kSize>(shared, parts, shared_head, n_parts);
  });
#endif
}

template <int kSize, bool kCapped>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kSize))
    attend_rows(const __grid_constant__ HeadAttention all) {
  __shared__ Shared<kSize> shared;
  __shared__ bool is_last;
  attend_own_row<kSize, kCapped>(all, [&](const HeadAttention& task, int shared_head, int n_parts) {
    return CountedPlace<kSize>(shared, is_last, task, shared_head, n_parts);
  });
}

template <int kSize, bool kCapped>
void launch_size(const HeadAttention& task, const Card& card, cudaStream_t stream) {
  const auto n_parts = static_cast<unsigned>(parts_with_cells(task));
  const auto n_sharing = static_cast<unsigned>(task.n_sharing);
  LaunchShape shape{.grid = dim3(n_parts, n_sharing, task.n_heads / n_sharing * task.n_rows),
                    .block = dim3(kThreads)};
  const bool of_rows = task.n_rows > 1;
  const auto in_clusters =
      of_rows ? attend_rows_in_clusters<kSize, kCapped> : attend_in_clusters<kSize, kCapped>;
  const bool has_clusters = card.compute >= 90 && can_start_early(in_clusters);
  if (has_clusters && n_parts > 1 && n_parts <= kClusterMost) {
    shape.cluster = n_parts;
    launch(in_clusters, shape, card, stream, task);
  } else {
    launch(of_rows ? attend_rows<kSize, kCapped> : attend<kSize, kCapped>, shape, card, stream,
           task);
  }
}

template <int kSize>
void launch_size(const HeadAttention& task, const Card& card, cudaStream_t stream) {
  if constexpr (kSize != 64) {  // ggml has none
    if (task.cap != 0) return launch_size<kSize, true>(task, card, stream);
  }
  launch_size<kSize, false>(task, card, stream);
}

}  // namespace

void enqueue_head_attention(const HeadAttention& task, const Card& card, CUstream_st* stream) {
  switch (task.head_size) {
    case 64:
      return launch_size<64>(task, card, stream);
    case 128:
      return launch_size<128>(task, card, stream);
    default:
      return launch_size<256>(task, card, stream);
  }
}

}  // namespace unpaced
