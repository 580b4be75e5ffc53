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

// quantize_q8_1 of ggml-cuda's quantize.cu, of values that are in registers. The whole warp calls
// it; its divisions are approximate (-use_fast_math), as there.
__device__ __forceinline__ void round_block(float value, Q8Block* to) {
  const float largest = warp_reduce_max<QK8_1>(fabsf(value));
  const float sum = warp_reduce_sum<QK8_1>(value);
  const float d = largest / 127.0f;
  const int8_t q = largest == 0.0f ? 0 : roundf(value / d);
  auto* block = reinterpret_cast<block_q8_1*>(to);
  const unsigned lane = threadIdx.x % QK8_1;
  block->qs[lane] = q;
  if (lane == 0) block->ds = make_half2(d, sum);
}

}  // namespace unpaced
