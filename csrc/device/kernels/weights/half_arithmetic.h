// Arithmetic on two F16 numbers in a word, the same on the device and on the host.
#pragma once

#include <bit>
#include <cstdint>

#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

#if !defined(__CUDA_ARCH__)
// The F16 number nearest to a value, ties to even.
inline std::uint32_t nearest_half(float value) {
  if (std::isnan(value)) return 0x7fffU;
  const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0;
  const float size = std::fabs(value);
  if (size >= 65520.0F) return sign | 0x7c00U;
  // Below 2^-14 the last place is worth 2^-24.
  if (size < 0x1p-14F) return sign | static_cast<std::uint32_t>(std::lrint(size * 0x1p24F));
  const auto bits = std::bit_cast<std::uint32_t>(size);
  // Thirteen places fewer, and an exponent that counts from 15 instead of 127. Digits beyond ten
  // bits carry into the exponent, as they should.
  return sign | (((bits + 0xfffU + (bits >> 13 & 1U)) >> 13) - (112U << 10));
}

// The same of an exact value, which may have more places than F32. Of its neighbours there the one
// whose last place is odd stands for it: no tie of F16's ends so.
inline std::uint32_t nearest_half(long double value) {
  const auto rounded = static_cast<float>(value);
  const bool is_odd = (std::bit_cast<std::uint32_t>(rounded) & 1U) != 0;
  if (is_odd || rounded == value) return nearest_half(rounded);
  return nearest_half(std::nextafter(rounded, rounded < value ? INFINITY : -INFINITY));
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
