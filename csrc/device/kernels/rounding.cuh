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

__device__ __forceinline__ int8_t rounded_byte(float value, float largest) {
  const float d = largest / 127.0f;
  return largest == 0.0f ? 0 : roundf(value / d);
}

// quantize_q8_1 of ggml-cuda's quantize.cu, of values that are in registers. The whole warp calls
// it; its divisions are approximate (-use_fast_math), as there.
__device__ __forceinline__ void round_block(float value, Q8Block* to) {
  const float largest = warp_reduce_max<QK8_1>(fabsf(value));
  const float sum = warp_reduce_sum<QK8_1>(value);
  auto* block = reinterpret_cast<block_q8_1*>(to);
  const unsigned lane = threadIdx.x % QK8_1;
  block->qs[lane] = rounded_byte(value, largest);
  if (lane == 0) block->ds = make_half2(largest / 127.0f, sum);
}

// What a warp's lanes make of kValues values each, by ggml's butterfly, which `join` is a stage of:
// value k's is at lanes k * 32 / kValues and behind. At each stage lanes give one another half of
// what they have: a multiprocessor shuffles one warp's values a clock.
template <int kValues, class Join>
__device__ __forceinline__ float reduce_each(const float (&values)[kValues], Join join) {
  static_assert(kValues <= 32 && (kValues & (kValues - 1)) == 0);
  float left[kValues];
#pragma unroll
  for (int k = 0; k < kValues; ++k) left[k] = values[k];
  int n = kValues;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    if (n == 1) {
      left[0] = join(left[0], __shfl_xor_sync(0xffffffff, left[0], offset));
      continue;
    }
    n /= 2;
    const bool upper = (threadIdx.x & offset) != 0;
#pragma unroll
    for (int k = 0; k < kValues / 2; ++k) {
      if (k >= n) break;
      const float given = upper ? left[k] : left[k + n];
      const float kept = upper ? left[k + n] : left[k];
      left[k] = join(kept, __shfl_xor_sync(0xffffffff, given, offset));
    }
  }
  return left[0];
}

// The same of kBlocks blocks, one `stride` behind the other, of which the first n are there. One's
// shuffles do not wait for another's.
template <int kBlocks>
__device__ __forceinline__ void round_blocks(const float* values, Q8Block* to, int stride, int n) {
  constexpr int kLanesEach = 32 / kBlocks;
  float magnitudes[kBlocks];
  float summands[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    magnitudes[k] = fabsf(values[k]);
    summands[k] = values[k];
  }
  const float largest = reduce_each(magnitudes, [](float a, float b) { return fmaxf(a, b); });
  const float sum = reduce_each(summands, [](float a, float b) { return a + b; });
  const int lane = static_cast<int>(threadIdx.x % 32), mine = lane / kLanesEach;
  if (lane % kLanesEach == 0 && mine < n)
    reinterpret_cast<block_q8_1*>(to + mine * stride)->ds = make_half2(largest / 127.0f, sum);
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    const float of_block = __shfl_sync(0xffffffff, largest, k * kLanesEach);
    if (k < n)
      reinterpret_cast<block_q8_1*>(to + k * stride)->qs[lane] = rounded_byte(values[k], of_block);
  }
}

}  // namespace unpaced
