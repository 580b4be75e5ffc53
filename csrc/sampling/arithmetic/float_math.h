// The float functions of the sampling arithmetic, with one meaning on host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "sampling/arithmetic/host_device.h"
#include "sampling/arithmetic/libm_f32.h"

namespace unpaced {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kMaxFloat = 3.402823466e+38F;

UNPACED_HD inline std::uint32_t bits_of(float x) noexcept {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

#if defined(__CUDACC__)
// glibc's expf for x <= 0, bit by bit; the sampling arithmetic asks for no other.
__device__ inline float device_exp_f32(float x) noexcept {
  constexpr double kN = 32.0;
  constexpr double kShift = 0x1.8p52;
  const double z = static_cast<double>(x > -104.0F ? x : -104.0F) * (0x1.71547652b82fep+0 * kN);
  const double shifted = z + kShift;
  const double r = z - (shifted - kShift);
  const auto k = static_cast<std::uint64_t>(__double_as_longlong(shifted));
  const double scale =
      __longlong_as_double(static_cast<long long>(libm_f32::kExp2Table[k % 32U] + (k << 47)));
  const double high = fma(0x1.c6af84b912394p-5 / kN / kN / kN, r, 0x1.ebfce50fac4f3p-3 / kN / kN);
  const double low = fma(0x1.62e42ff0c52d6p-1 / kN, r, 1.0);
  return static_cast<float>(fma(high, r * r, low) * scale);
}
#endif

// The host takes libm's functions, which llama.cpp calls too; the device has glibc's (libm_f32.h).
UNPACED_HD inline float exp_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return device_exp_f32(x);
#else
  return ::expf(x);
#endif
}

UNPACED_HD inline float log_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return libm_f32::log(x);
#else
  return ::logf(x);
#endif
}

UNPACED_HD inline float log2_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return libm_f32::log2(x);
#else
  return ::log2f(x);
#endif
}

UNPACED_HD inline float pow_f32(float x, float y) noexcept {
#if defined(__CUDA_ARCH__)
  return libm_f32::pow(x, y);
#else
  return ::powf(x, y);
#endif
}

// Truncation as x86's cvttss2si does it: what does not fit (NaN included) is INT32_MIN. llama.cpp's
// mirostat relies on it, where C++ leaves the conversion undefined.
UNPACED_HD inline std::int32_t truncate_to_i32(float x) noexcept {
  const bool fits = x >= -2147483648.0F && x < 2147483648.0F;
  return fits ? static_cast<std::int32_t>(x) : INT32_MIN;
}

// A logit that was changed by a bias or a penalty, made legal again: what overflowed upwards is
// finite, what has no value any more (NaN) is banned. -inf stays: it bans a token.
UNPACED_HD inline float legal_logit(float x) noexcept {
  if (x != x) return -kInfinity;
  return x > kMaxFloat ? kMaxFloat : x;
}

}  // namespace unpaced
