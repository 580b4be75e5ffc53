// What a warp makes of a step of 16 rows of Q8_0 (mmq-vec-dot.cuh: vec_dot_q8_0_q8_1_mma): each
// group's integer sum times the row's scale, times the column's.
#pragma once

#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

struct Q80Tile {
  static constexpr int kGroupBytes = 34;
  static constexpr int kBlockBytes = kQ80Step.bytes;
  static_assert(kBlockBytes == 8 * kGroupBytes);
  static constexpr int kChunks = kBlockBytes / 16;
  static constexpr int kPitch = kQ80Step.pitch;

  __device__ static std::int64_t offset(int step) { return std::int64_t{step} * kBlockBytes; }

  template <int kOwn, int kMatrices, int kEights>
  __device__ static void multiply_step(const std::uint8_t* weights, int matrix_bytes,
                                       const std::uint8_t* records, int,
                                       float (&sums)[kMatrices][kEights][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      // Groups of an even number begin at a multiple of four, with a scale of two bytes.
      const bool is_between = group % 2 == 0;
      std::uint32_t a[kMatrices][4];
      float scale[kMatrices][2];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::uint8_t* row = weights + m * matrix_bytes + (g + i % 2 * 8) * kPitch;
          const std::uint8_t* at = row + group * kGroupBytes + 2 + 16 * (i / 2) + 4 * t;
          a[m][i] = is_between ? word_between(at - 2, 16) : word(at);
          if (i < 2)
            scale[m][i] = __half2float(*reinterpret_cast<const half*>(row + group * kGroupBytes));
        }
      }
#pragma unroll
      for (int e = 0; e < kOwn; ++e) {
        const std::uint8_t* record = records + e * BatchRecord::kBytes;
        const uint2 b =
            *reinterpret_cast<const uint2*>(record + group * BatchRecord::kGroupBytes + 8 * lane);
        const float2 own =
            *reinterpret_cast<const float2*>(record + BatchRecord::float_at(2 * t, group));
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          std::int32_t c[4];
          multiply_signed(c, a[m], b);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float scaled = __fmul_rn(static_cast<float>(c[i]), scale[m][i / 2]);
            sums[m][e][i] = __fmaf_rn(scaled, i % 2 == 0 ? own.x : own.y, sums[m][e][i]);
          }
        }
      }
    }
  }
};

}  // namespace unpaced::mat_mat
