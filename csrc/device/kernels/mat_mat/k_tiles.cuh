// What a warp makes of a step of 16 rows of Q4_K or Q5_K (mmq-vec-dot.cuh: vec_dot_q8_1_q8_1_mma):
// for each group of 32 values the product of both scales times the integer sum, then the product of
// the least value and the column's sum.
#pragma once

#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/tensor.cuh"
#include "device/kernels/rows/batch_records.h"

namespace unpaced::mat_mat {

template <int kBits>
struct TwoGroups {
  static constexpr StepShape kStep = kBits == 5 ? kQ5KStep : kQ4KStep;
  static constexpr int kBlockBytes = kStep.bytes;
  static constexpr int kChunks = kBlockBytes / 16;
  static constexpr int kPitch = kStep.pitch;

  __device__ static std::int64_t offset(int step) { return std::int64_t{step} * kBlockBytes; }

  // Scales and least values of groups 2 * t and 2 * t + 1 of a row.
  struct Scales {
    std::uint32_t scale, least;
  };
  __device__ static Scales scales_of(uint4 head, int t) {
    std::uint32_t scale, least;
    if (t < 2) {
      scale = head.y & 0x3f3f3f3fU;
      least = head.z & 0x3f3f3f3fU;
    } else {
      scale = (head.w & 0x0f0f0f0fU) | (head.y >> 2U & 0x30303030U);
      least = (head.w >> 4U & 0x0f0f0f0fU) | (head.z >> 2U & 0x30303030U);
    }
    // As the low byte of 1024 and something.
    const unsigned both = t % 2 == 0 ? 0x4140U : 0x4342U;
    const half2 base = __half2half2(__ushort_as_half(0x6400));
    const auto number = [&](std::uint32_t bytes) {
      const std::uint32_t halves = __byte_perm(bytes, 0x64646464U, both);
      return __hsub2(*reinterpret_cast<const half2*>(&halves), base);
    };
    const half2 own = *reinterpret_cast<const half2*>(&head.x);
    const half2 scaled = __hmul2(__low2half2(own), number(scale));
    const half2 reduced = __hmul2(__hneg2(__high2half2(own)), number(least));
    return {*reinterpret_cast<const std::uint32_t*>(&scaled),
            *reinterpret_cast<const std::uint32_t*>(&reduced)};
  }

  // Words t and t + 4 of rows g and g + 8, of group 2 * pair + kUpper. Of four bits the upper group
  // is 16 times as large.
  template <bool kUpper>
  __device__ static void take(std::uint32_t (&a)[4], const std::uint32_t (&words)[4],
                              const std::uint32_t (&fifths)[4], int pair) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kBits == 4) {
        a[i] = words[i] & (kUpper ? 0xf0f0f0f0U : 0x0f0f0f0fU);
      } else {
        a[i] = ((kUpper ? words[i] >> 4U : words[i]) & 0x0f0f0f0fU) |
               (fifths[i] >> (2 * pair + (kUpper ? 1 : 0)) << 4U & 0x10101010U);
      }
    }
  }

  template <int kOwn, int kMatrices, int kEights>
  __device__ static void multiply_step(const std::uint8_t* weights, int matrix_bytes,
                                       const std::uint8_t* records, int,
                                       float (&sums)[kMatrices][kEights][4]) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
    std::uint32_t scale[kMatrices][2], least[kMatrices][2], fifths[kMatrices][4];
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const std::uint8_t* row = weights + m * matrix_bytes + (g + 8 * r) * kPitch;
        const Scales both = scales_of(*reinterpret_cast<const uint4*>(row), t);
        scale[m][r] = both.scale;
        least[m][r] = both.least;
        if constexpr (kBits == 5) {
          fifths[m][r] = word(row + 16 + 4 * t);
          fifths[m][r + 2] = word(row + 32 + 4 * t);
        }
      }
    }
    std::uint32_t scales[kOwn], totals[kOwn];
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const std::uint8_t* record = records + e * BatchRecord::kBytes + 4 * lane;
      scales[e] = word(record + BatchRecord::kScalesAt);
      totals[e] = word(record + BatchRecord::kSumsAt);
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t words[kMatrices][4];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[m][i] = word(weights + m * matrix_bytes + (g + i % 2 * 8) * kPitch +
                             (kPitch - 128) + 32 * pair + 16 * (i / 2) + 4 * t);
      }
      const std::uint32_t own = t == pair ? ~0U : 0U;
      add<kOwn, kMatrices, kEights, false>(records, pair, words, fifths, own & 0xffffU, scale,
                                           least, scales, totals, sums);
      add<kOwn, kMatrices, kEights, true>(records, pair, words, fifths, own & 0xffff0000U, scale,
                                          least, scales, totals, sums);
    }
  }

 private:
  template <int kOwn, int kMatrices, int kEights, bool kUpper>
  __device__ __forceinline__ static void add(
      const std::uint8_t* records, int pair, const std::uint32_t (&words)[kMatrices][4],
      const std::uint32_t (&fifths)[kMatrices][4], std::uint32_t own,
      const std::uint32_t (&scale)[kMatrices][2], const std::uint32_t (&least)[kMatrices][2],
      const std::uint32_t (&scales)[kOwn], const std::uint32_t (&totals)[kOwn],
      float (&sums)[kMatrices][kEights][4]) {
    constexpr bool kSixteenfold = kBits == 4 && kUpper;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const std::uint8_t* group =
        records + (2 * pair + (kUpper ? 1 : 0)) * BatchRecord::kGroupBytes + 8 * lane;
    std::uint32_t a[kMatrices][4];
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) take<kUpper>(a[m], words[m], fifths[m], pair);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const uint2 b = *reinterpret_cast<const uint2*>(group + e * BatchRecord::kBytes);
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
        float c[4], both[4], less[4];
        multiply(c, a[m], b);
        multiply_scales(both, scale[m], scales[e] & own);
        multiply_scales(less, least[m], totals[e] & own);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float sum = kSixteenfold ? __fmaf_rn(c[i], 0.0625f, -0.0625f * kFloatBase)
                                         : __fsub_rn(c[i], kFloatBase);
          sums[m][e][i] = __fadd_rn(__fmaf_rn(both[i], sum, sums[m][e][i]), less[i]);
        }
      }
    }
  }
};

}  // namespace unpaced::mat_mat
