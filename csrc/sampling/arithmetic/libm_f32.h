// logf, log2f and powf as glibc computes them on CPUs with a fused multiply-add, bit by bit: the
// method and coefficients of Arm's optimized routines (v19.06: math/logf.c, log2f.c, powf.c), which
// glibc, musl and bionic use. For the device; the host has libm.
#pragma once

#include <cmath>
#include <cstdint>

namespace unpaced::libm_f32 {

#if defined(__CUDACC__)
#define UNPACED_LIBM __device__
#define UNPACED_TABLE static __device__ const
#else
#define UNPACED_LIBM
#define UNPACED_TABLE static const
#endif

struct LogEntry {
  double inverse;  // 1/c for a c near the middle of the interval
  double ln;       // ln c
  double log2;     // log2 c
};

UNPACED_TABLE LogEntry kLogTable[16] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2, -0x1.efec65b963019p-2},
    {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2, -0x1.b0b6832d4fca4p-2},
    {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2, -0x1.7418b0a1fb77bp-2},
    {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3, -0x1.39de91a6dcf7bp-2},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3, -0x1.01d9bf3f2b631p-2},
    {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3, -0x1.97c1d1b3b7afp-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4, -0x1.2f9e393af3c9fp-3},
    {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4, -0x1.960cbbf788d5cp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5, -0x1.a6f9db6475fcep-5},
    {0x1p+0, 0x0p+0, 0x0p+0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5, 0x1.338ca9f24f53dp-4},
    {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4, 0x1.476a9543891bap-3},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3, 0x1.e840b4ac4e4d2p-3},
    {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3, 0x1.40645f0c6651cp-2},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2, 0x1.88e9c2c1b9ff8p-2},
    {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2, 0x1.ce0a44eb17bccp-2},
};

// Bits of 2^(i/32), less i << 47, so that adding k << 47 with k % 32 == i gives 2^(k/32).
UNPACED_TABLE std::uint64_t kExp2Table[32] = {
    0x3ff0000000000000U, 0x3fefd9b0d3158574U, 0x3fefb5586cf9890fU, 0x3fef9301d0125b51U,
    0x3fef72b83c7d517bU, 0x3fef54873168b9aaU, 0x3fef387a6e756238U, 0x3fef1e9df51fdee1U,
    0x3fef06fe0a31b715U, 0x3feef1a7373aa9cbU, 0x3feedea64c123422U, 0x3feece086061892dU,
    0x3feebfdad5362a27U, 0x3feeb42b569d4f82U, 0x3feeab07dd485429U, 0x3feea47eb03a5585U,
    0x3feea09e667f3bcdU, 0x3fee9f75e8ec5f74U, 0x3feea11473eb0187U, 0x3feea589994cce13U,
    0x3feeace5422aa0dbU, 0x3feeb737b0cdc5e5U, 0x3feec49182a3f090U, 0x3feed503b23e255dU,
    0x3feee89f995ad3adU, 0x3feeff76f2fb5e47U, 0x3fef199bdd85529cU, 0x3fef3720dcef9069U,
    0x3fef5818dcfba487U, 0x3fef7c97337b9b5fU, 0x3fefa4afa2a490daU, 0x3fefd0765b6e4540U,
};

UNPACED_LIBM inline double fused(double a, double b, double c) noexcept { return ::fma(a, b, c); }

UNPACED_LIBM inline std::uint32_t bits(float x) noexcept {
  std::uint32_t b;
  __builtin_memcpy(&b, &x, sizeof(b));
  return b;
}

UNPACED_LIBM inline float float_of(std::uint32_t b) noexcept {
  float x;
  __builtin_memcpy(&x, &b, sizeof(x));
  return x;
}

UNPACED_LIBM inline std::uint64_t bits(double x) noexcept {
  std::uint64_t b;
  __builtin_memcpy(&b, &x, sizeof(b));
  return b;
}

UNPACED_LIBM inline double double_of(std::uint64_t b) noexcept {
  double x;
  __builtin_memcpy(&x, &b, sizeof(x));
  return x;
}

// x = 2^k z with z in about [0.7, 1.4): k, z * inverse - 1 and the table's row.
struct Reduced {
  double k;
  double r;
  double ln;
  double log2;
};

UNPACED_LIBM inline Reduced reduce(std::uint32_t x) noexcept {
  const std::uint32_t above = x - 0x3f330000U;
  const LogEntry& entry = kLogTable[above >> 19 & 15U];
  const double z = float_of(x - (above & 0xff800000U));
  return {static_cast<double>(static_cast<std::int32_t>(above) >> 23),
          fused(z, entry.inverse, -1.0), entry.ln, entry.log2};
}

// Bits of a normal number of the same significand as a subnormal one, the exponent below the range.
UNPACED_LIBM inline std::uint32_t normalised(float x) noexcept {
  return bits(x) < 0x00800000U ? bits(x * 0x1p23F) - (23U << 23) : bits(x);
}

// Of x that is not negative.
UNPACED_LIBM inline float log(float x) noexcept {
  if (x != x || x == __builtin_inff()) return x;
  if (x == 0.0F) return -__builtin_inff();
  const Reduced a = reduce(normalised(x));
  const double y0 = fused(a.k, 0x1.62e42fefa39efp-1, a.ln);
  const double r2 = a.r * a.r;
  double y = fused(0x1.5575b0be00b6ap-2, a.r, -0x1.ffffef20a4123p-2);
  y = fused(-0x1.00ea348b88334p-2, r2, y);
  return static_cast<float>(fused(y, r2, y0 + a.r));
}

// Of x that is not negative.
UNPACED_LIBM inline float log2(float x) noexcept {
  if (x != x || x == __builtin_inff()) return x;
  if (x == 0.0F) return -__builtin_inff();
  const Reduced a = reduce(normalised(x));
  const double y0 = a.log2 + a.k;
  const double r2 = a.r * a.r;
  double y = fused(0x1.ecabf496832ep-2, a.r, -0x1.715479ffae3dep-1);
  y = fused(-0x1.712b6f70a7e4dp-2, r2, y);
  const double p = fused(0x1.715475f35c8b8p0, a.r, y0);
  return static_cast<float>(fused(y, r2, p));
}

// 2^x, |x| below about 150.
UNPACED_LIBM inline float exp2_of(double x) noexcept {
  constexpr double kN = 32.0;
  constexpr double kShift = 0x1.8p52 / kN;
  const double shifted = x + kShift;
  const std::uint64_t k = bits(shifted);
  const double r = x - (shifted - kShift);
  const double scale = double_of(kExp2Table[k % 32U] + (k << 47));
  const double high = fused(0x1.c6af84b912394p-5, r, 0x1.ebfce50fac4f3p-3);
  const double low = fused(0x1.62e42ff0c52d6p-1, r, 1.0);
  return static_cast<float>(fused(high, r * r, low) * scale);
}

// Any x and y. What has no real value is NaN (of either sign, unlike libm's).
UNPACED_LIBM inline float pow(float x, float y) noexcept {
  constexpr float kInf = __builtin_inff();
  if (y == 0.0F || x == 1.0F) return 1.0F;
  if (x != x || y != y) return x + y;
  const float magnitude = x < 0.0F ? -x : x;
  if (y == kInf || y == -kInf) {
    if (magnitude == 1.0F) return 1.0F;
    return (magnitude < 1.0F) == (y > 0.0F) ? 0.0F : kInf;
  }
  const bool is_integer = ::floorf(y) == y;
  const bool is_odd = is_integer && ::floorf(y * 0.5F) != y * 0.5F;
  const bool is_negative = (bits(x) & 0x80000000U) != 0U;
  if (magnitude == 0.0F || magnitude == kInf) {
    const float result = (magnitude == 0.0F) == (y > 0.0F) ? 0.0F : kInf;
    return is_negative && is_odd ? -result : result;
  }
  if (is_negative && !is_integer) return float_of(0x7fc00000U);
  const Reduced a = reduce(normalised(magnitude));
  const double r2 = a.r * a.r;
  double high = fused(0x1.27616c9496e0bp-2, a.r, -0x1.71969a075c67ap-2);
  const double middle = fused(0x1.ec70a6ca7baddp-2, a.r, -0x1.7154748bef6c8p-1);
  double low = fused(0x1.71547652ab82bp0, a.r, a.log2 + a.k);
  low = fused(middle, r2, low);
  high = fused(high, r2 * r2, low);
  const double exponent = static_cast<double>(y) * high;
  float result = 0.0F;
  if (exponent > 0x1.fffffffd1d571p+6) {
    result = kInf;
  } else if (exponent > -150.0) {
    result = exp2_of(exponent);
  }
  return is_negative && is_odd ? -result : result;
}

}  // namespace unpaced::libm_f32
