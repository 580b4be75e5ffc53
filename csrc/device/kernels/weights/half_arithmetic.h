// Arithmetic on two F16 numbers in a word, the same on the device and on the host.
#pragma once

#include <cstdint>

#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

#if !defined(__CUDA_ARCH__)
// The F16 number nearest to an exact value, ties to even.
inline std::uint32_t nearest_half(long double value) {
  if (std::isnan(value)) return 0x7fffU;
  const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0;
  const long double size = std::fabs(value);
  if (size >= 65520.0L) return sign | 0x7c00U;
  int exponent = 0;
  std::frexp(size, &exponent);
  // The last place is worth 2^-24 at least, and 2^-11 of the leading one.
  const int place = exponent - 11 < -24 || size == 0 ? -24 : exponent - 11;
  const auto digits = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, -place)));
  // Digits beyond ten bits carry into the exponent, as they should.
  return sign | (static_cast<std::uint32_t>(place + 24) * 1024U + digits);
}
#endif

UNPACED_BOTH std::uint32_t two_halves(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t both;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else  // one by one
  asm("{ .reg .f16 a, b; cvt.rn.f16.f32 a, %1; cvt.rn.f16.f32 b, %2; mov.b32 %0, {a, b}; }"
      : "=r"(both)
      : "f"(low), "f"(high));
#endif
  return both;
#else
  return nearest_half(low) | nearest_half(high) << 16;
#endif
}

// a * b + c of both halves, each rounded once; subnormal numbers are numbers.
UNPACED_BOTH std::uint32_t fused_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
#if defined(__CUDA_ARCH__)
  std::uint32_t both;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(both) : "r"(a), "r"(b), "r"(c));
  return both;
#else
  std::uint32_t both = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const auto value = [shift](std::uint32_t word) -> long double {
      return half_value((word >> shift) & 0xffffU);
    };
    // Exact: 22 bits times and plus 11, at most 64 apart.
    both |= nearest_half(value(a) * value(b) + value(c)) << shift;
  }
  return both;
#endif
}

}  // namespace unpaced::mat_vec
