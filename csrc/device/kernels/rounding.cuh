// Values as q8: a warp's lane each, 32 that follow one another.
#pragma once

#include "device/kernels/ggml_device.cuh"
#include "device/kernels/q8_row.h"

namespace unpaced {

// Of a row with its padding: q8_blocks() for the device.
__host__ __device__ constexpr int n_with_padding(int n_values) {
  return (n_values + kQ8RowPadding - 1) / kQ8RowPadding * kQ8RowPadding;
}

static_assert(sizeof(Q8Block) == sizeof(block_q8_1));

__device__ __forceinline__ void store_rounded(float value, float largest, float sum, Q8Block* to) {
  const float d = largest / 127.0f;
  const int8_t q = largest == 0.0f ? 0 : roundf(value / d);
  auto* block = reinterpret_cast<block_q8_1*>(to);
  const unsigned lane = threadIdx.x % QK8_1;
  block->qs[lane] = q;
  if (lane == 0) block->ds = make_half2(d, sum);
}

// quantize_q8_1 of ggml-cuda's quantize.cu, of values that are in registers. The whole warp calls
// it; its divisions are approximate (-use_fast_math), as there.
__device__ __forceinline__ void round_block(float value, Q8Block* to) {
  store_rounded(value, warp_reduce_max<QK8_1>(fabsf(value)), warp_reduce_sum<QK8_1>(value), to);
}

// The same of kBlocks blocks, one `stride` behind the other, of which the first n are there. One's
// shuffles do not wait for another's.
template <int kBlocks>
__device__ __forceinline__ void round_blocks(const float* values, Q8Block* to, int stride, int n) {
  float largest[kBlocks];
  float sum[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    largest[k] = fabsf(values[k]);
    sum[k] = values[k];
  }
#pragma unroll
  for (int offset = QK8_1 / 2; offset > 0; offset /= 2) {
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      largest[k] = fmaxf(largest[k], __shfl_xor_sync(0xffffffff, largest[k], offset));
      sum[k] += __shfl_xor_sync(0xffffffff, sum[k], offset);
    }
  }
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    if (k < n) store_rounded(values[k], largest[k], sum[k], to + k * stride);
  }
}

}  // namespace unpaced
