// What a warp makes of a step of 16 rows of Q6_K (mmq-vec-dot.cuh: vec_dot_q6_K_q8_1_mma): for each
// group of 32 values its halves' integer sums times their scales, times the column's scale; four
// groups' of them times the row's.
#pragma once

#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

struct Q6KTile {
  static constexpr int kBlockBytes = kQ6KStep.bytes;
  static constexpr int kChunks = 14;  // from the multiple of 16 before a block
  static constexpr int kPitch = kQ6KStep.pitch;

  __device__ static std::int64_t offset(int step) {
    return std::int64_t{step} * kBlockBytes / 16 * 16;
  }

  template <int kOwn, int kMatrices, int kEights>
  __device__ static void multiply_step(const std::uint8_t* weights, int matrix_bytes,
                                       const std::uint8_t* records, int step,
                                       float (&sums)[kMatrices][kEights][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    const int begin = 2 * (step % 8);
    const unsigned shift = 8U * static_cast<unsigned>(begin % 4);
    const std::uint8_t* rows = weights + g * kPitch + begin / 4 * 4;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      const auto at = [&](int row, int byte) {
        return word_between(rows + m * matrix_bytes + 8 * row * kPitch + byte, shift);
      };
      float scale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        scale[r] = __half2float(__ushort_as_half(static_cast<unsigned short>(
            word(rows + m * matrix_bytes + 8 * r * kPitch + 208) >> shift)));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float parts[kOwn][4] = {};
        std::uint32_t uppers[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) uppers[i] = at(i % 2, 128 + 32 * n + 16 * (i / 2) + 4 * t);
        std::uint32_t lowers[2][4];
#pragma unroll
        for (int b = 0; b < 2; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            lowers[b][i] = at(i % 2, 64 * n + 32 * b + 16 * (i / 2) + 4 * t);
        }
        std::uint32_t factors[2][2];  // of a row: eight, of four groups
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          factors[r][0] = at(r, 192 + 8 * n);
          factors[r][1] = at(r, 196 + 8 * n);
        }
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          std::uint32_t a[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const std::uint32_t low = lowers[q % 2][i] >> (q < 2 ? 0 : 4) & 0x0f0f0f0fU;
            const std::uint32_t high =
                (q < 2 ? uppers[i] << (4 - 2 * q) : uppers[i] >> (2 * q - 4)) & 0x30303030U;
            a[i] = ((low | high | 0x80808080U) - 0x20202020U) ^ 0x80808080U;
          }
          const auto factor = [&](int r, int h) {
            return static_cast<int>(
                static_cast<std::int8_t>(factors[r][q / 2] >> (16 * (q % 2) + 8 * h)));
          };
          const int factor_of[2][2] = {{factor(0, 0), factor(0, 1)}, {factor(1, 0), factor(1, 1)}};
#pragma unroll
          for (int e = 0; e < kOwn; ++e) {
            const std::uint8_t* record = records + e * BatchRecord::kBytes;
            const uint2 b = *reinterpret_cast<const uint2*>(
                record + (4 * n + q) * BatchRecord::kGroupBytes + 8 * lane);
            const float2 own =
                *reinterpret_cast<const float2*>(record + BatchRecord::float_at(2 * t, 4 * n + q));
            std::int32_t c[2][4];
            multiply_half(c[0], a[0], a[1], b.x);
            multiply_half(c[1], a[2], a[3], b.y);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int sum = c[0][i] * factor_of[i / 2][0] + c[1][i] * factor_of[i / 2][1];
              parts[e][i] =
                  __fmaf_rn(static_cast<float>(sum), i % 2 == 0 ? own.x : own.y, parts[e][i]);
            }
          }
        }
#pragma unroll
        for (int e = 0; e < kOwn; ++e) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[m][e][i] = __fmaf_rn(parts[e][i], scale[i / 2], sums[m][e][i]);
        }
      }
    }
  }
};

}  // namespace unpaced::mat_mat
