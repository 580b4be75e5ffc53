// A row's product as ggml's mul_mat_vec_q computes it for one column, thread by thread: what the
// mat-vec kernels are compared with where there is no GPU.
//
// Written from vecdotq.cuh and mmvq.cu, not from our kernels. Which products are fused with which
// sums is what the instructions of ggml's kernel say (sm_90, -use_fast_math): each dot's last
// product goes into the thread's sum, except for Q4_K and Q5_K, whose value is made first.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/kernels/mat_vec.h"
#include "device/kernels/q8_row.h"

namespace unpaced::test {

// The device's arithmetic: subnormals are zeros.
inline float ftz(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
inline float mul(float a, float b) { return ftz(ftz(a) * ftz(b)); }
inline float add(float a, float b) { return ftz(ftz(a) + ftz(b)); }
inline float fma(float a, float b, float c) { return ftz(std::fmaf(ftz(a), ftz(b), ftz(c))); }

inline float half_at(const std::uint8_t* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value = 0;
  if (exponent == 31)
    value = mantissa != 0 ? NAN : INFINITY;
  else
    value = std::ldexp(static_cast<float>(exponent != 0 ? 1024 + mantissa : mantissa),
                       (exponent != 0 ? exponent : 1) - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

inline float d8(const Q8Block& y) { return half_at(reinterpret_cast<const std::uint8_t*>(&y)); }
inline float s8(const Q8Block& y) { return half_at(reinterpret_cast<const std::uint8_t*>(&y) + 2); }

// One turn of the loop of the thread whose part of block `x` begins at word `iqs`.
using Turn = float (*)(const std::uint8_t* x, const Q8Block* y, int iqs, float sum);

// Six bits each, packed into twelve bytes: scales 0 to 7, then minima.
inline void scale_and_minimum(const std::uint8_t* packed, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
}

// Q4_K and Q5_K: `bits` has a group's eight weights.
template <class WeightAt>
float two_groups(const std::uint8_t* x, const Q8Block* y, int iqs, float sum, WeightAt weight) {
  const int group = 2 * (iqs / 2 / 4);
  const int first = 4 * (iqs / 2 % 4);
  float sum_d = 0;
  float sum_m = 0;
  for (int i = 0; i < 2; ++i) {
    int dot = 0, total = 0, scale = 0, minimum = 0;
    for (int k = 0; k < 4; ++k) {
      for (const int at : {first + k, first + 16 + k}) {
        dot += weight(group + i, at) * y[group + i].values[at];
        total += y[group + i].values[at];
      }
    }
    scale_and_minimum(x + 4, group + i, scale, minimum);
    sum_d = fma(d8(y[group + i]), static_cast<float>(dot * scale), sum_d);
    sum_m = fma(d8(y[group + i]), static_cast<float>(total * minimum), sum_m);
  }
  return add(fma(sum_d, half_at(x), -mul(sum_m, half_at(x + 2))), sum);
}

inline float turn_q4_k(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  return two_groups(x, y, iqs, sum, [&](int group, int i) {
    return x[16 + 32 * (group / 2) + i] >> (4 * (group % 2)) & 15;
  });
}

inline float turn_q5_k(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  return two_groups(x, y, iqs, sum, [&](int group, int i) {
    return (x[48 + 32 * (group / 2) + i] >> (4 * (group % 2)) & 15) | (x[16 + i] >> group & 1) << 4;
  });
}

inline float turn_q6_k(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  const int half = iqs / 16;
  float inner = 0;
  for (int i = 0; i < 2; ++i) {
    // Group g of the half has 32 weights: low bits in bytes 32 * (g % 2) of 64, nibble g / 2.
    const int group = iqs % 16 / 8 + 2 * i;
    const Q8Block& block = y[4 * half + group];
    int dot = 0;
    for (int k = 0; k < 4; ++k) {
      const int at = 4 * (iqs % 8) + k;
      const int low = x[64 * half + 32 * (group % 2) + at] >> (4 * (group / 2)) & 15;
      const int high = x[128 + 32 * half + at] >> (2 * group) & 3;
      dot += ((low | high << 4) - 32) * block.values[at];
    }
    const auto scale = static_cast<std::int8_t>(x[192 + 8 * half + 2 * group + (iqs % 8) / 4]);
    inner = fma(d8(block), static_cast<float>(dot * scale), inner);
  }
  return fma(half_at(x + 208), inner, sum);
}

inline float turn_q8_0(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  int dot = 0;
  for (int i = 4 * iqs; i < 4 * iqs + 8; ++i)
    dot += static_cast<std::int8_t>(x[2 + i]) * y->values[i];
  return fma(mul(half_at(x), d8(*y)), static_cast<float>(dot), sum);
}

// Bytes 4 * iqs … + 8 of a block's 16, the low halves and the high ones 16 further on.
template <class WeightAt>
int half_block(const Q8Block* y, int iqs, WeightAt weight) {
  int dot = 0;
  for (int i = 4 * iqs; i < 4 * iqs + 8; ++i)
    dot += weight(i) * y->values[i] + weight(i + 16) * y->values[i + 16];
  return dot;
}

inline float turn_q4_0(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  const int dot = half_block(y, iqs, [&](int i) { return x[2 + i % 16] >> (4 * (i / 16)) & 15; });
  return fma(half_at(x), fma(static_cast<float>(dot), d8(*y), -mul(4, s8(*y))), sum);
}

inline float turn_q5_0(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  const int dot = half_block(y, iqs, [&](int i) {
    return (x[6 + i % 16] >> (4 * (i / 16)) & 15) | (x[2 + i / 8] >> (i % 8) & 1) << 4;
  });
  return fma(half_at(x), fma(static_cast<float>(dot), d8(*y), -mul(8, s8(*y))), sum);
}

inline float turn_mxfp4(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  static constexpr int kCodes[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const int dot =
      half_block(y, iqs, [&](int i) { return kCodes[x[1 + i % 16] >> (4 * (i / 16)) & 15]; });
  const float power = x[0] == 255 ? NAN : std::ldexp(1.0F, x[0] - 127);
  return fma(mul(mul(power, 0.5F), d8(*y)), static_cast<float>(dot), sum);
}

inline float turn_iq4_xs(const std::uint8_t* x, const Q8Block* y, int iqs, float sum) {
  static constexpr int kCodes[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
  const int group = iqs / 4;
  int dot = 0;
  for (int i = 0; i < 32; ++i)
    dot += kCodes[x[8 + 16 * group + i % 16] >> (4 * (i / 16)) & 15] * y[group].values[i];
  const int high = x[2] | x[3] << 8;
  const int scale = (x[4 + group / 2] >> (4 * (group % 2)) & 15) | (high >> (2 * group) & 3) << 4;
  return fma(mul(half_at(x), d8(y[group])), static_cast<float>(dot * (scale - 32)), sum);
}

// A format as ggml's tables have it: qi and vdr are words of 32 bits.
struct GgmlFormat {
  const char* name;
  WeightFormat format;
  int ggml_type;
  int block_values;
  int block_bytes;
  int qi;
  int vdr;
  Turn turn;
};

inline const std::vector<GgmlFormat>& ggml_formats() {
  static const std::vector<GgmlFormat> all = {
      {"Q4_K", WeightFormat::kQ4_K, 12, 256, 144, 32, 2, turn_q4_k},
      {"Q5_K", WeightFormat::kQ5_K, 13, 256, 176, 32, 2, turn_q5_k},
      {"Q6_K", WeightFormat::kQ6_K, 14, 256, 210, 32, 1, turn_q6_k},
      {"Q8_0", WeightFormat::kQ8_0, 8, 32, 34, 8, 2, turn_q8_0},
      {"Q4_0", WeightFormat::kQ4_0, 2, 32, 18, 4, 2, turn_q4_0},
      {"Q5_0", WeightFormat::kQ5_0, 6, 32, 22, 4, 2, turn_q5_0},
      {"IQ4_XS", WeightFormat::kIq4Xs, 23, 256, 136, 32, 4, turn_iq4_xs},
      {"MXFP4", WeightFormat::kMxfp4, 39, 32, 17, 4, 2, turn_mxfp4},
  };
  return all;
}

// The sum of one row: `n_warps` warps, then what thread (0, lane) adds, then the butterfly.
inline float ggml_row(const GgmlFormat& format, const std::uint8_t* row, const Q8Block* y,
                      int n_values, int n_warps) {
  const int n_blocks = n_values / format.block_values;
  const int threads = format.qi / format.vdr;
  const int per_turn = format.vdr * n_warps * 32 / format.qi;
  std::vector<float> sums(static_cast<std::size_t>(n_warps) * 32, 0.0F);
  for (int t = 0; t < n_warps * 32; ++t) {
    float& sum = sums[static_cast<std::size_t>(t)];
    for (int block = t / threads; block < n_blocks; block += per_turn) {
      sum = format.turn(row + std::ptrdiff_t{block} * format.block_bytes,
                        y + block * (format.block_values / 32), format.vdr * (t % threads), sum);
    }
  }
  float lanes[32];
  for (int l = 0; l < 32; ++l) {
    lanes[l] = sums[static_cast<std::size_t>(l)];
    for (int w = 1; w < n_warps; ++w)
      lanes[l] = add(lanes[l], sums[static_cast<std::size_t>(32 * w + l)]);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    float next[32];
    for (int l = 0; l < 32; ++l) next[l] = add(lanes[l], lanes[l ^ offset]);
    std::memcpy(lanes, next, sizeof lanes);
  }
  return lanes[0];
}

// --- weights that are not quantised: mul_mat_vec_f, mmvf.cu
// -----------------------------------------

// As many threads as make the fewest turns, two weights a turn, and no more.
inline int ggml_float_threads(int n_values) {
  int best = 32;
  for (int threads = 64; threads <= 256; threads += 32) {
    if ((n_values + 2 * threads - 1) / (2 * threads) < (n_values + 2 * best - 1) / (2 * best))
      best = threads;
  }
  return best;
}

inline float butterfly(float (&lanes)[32]) {
  for (int offset = 16; offset > 0; offset /= 2) {
    float next[32];
    for (int l = 0; l < 32; ++l) next[l] = add(lanes[l], lanes[l ^ offset]);
    std::memcpy(lanes, next, sizeof lanes);
  }
  return lanes[0];
}

// `turn(i, sum)` adds weights 2 * i and the next one to what a thread has; `end(sum)` is its sum.
template <class Sum, class TakeTurn, class End>
float ggml_float_row(int n_values, TakeTurn turn, End end) {
  const int n_threads = ggml_float_threads(n_values);
  float warps[32] = {};
  for (int w = 0; w < n_threads / 32; ++w) {
    float lanes[32];
    for (int l = 0; l < 32; ++l) {
      Sum sum = {};
      for (int i = 32 * w + l; i < n_values / 2; i += n_threads) sum = turn(i, sum);
      lanes[l] = end(sum);
    }
    warps[w] = butterfly(lanes);
  }
  return n_threads == 32 ? warps[0] : butterfly(warps);
}

}  // namespace unpaced::test
