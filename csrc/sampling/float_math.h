// The float functions of the sampling arithmetic, with one meaning on host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace unpaced {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kMaxFloat = 3.402823466e+38F;

UNPACED_HD inline std::uint32_t bits_of(float x) noexcept {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

#if defined(__CUDACC__)
// Bits of 2^(i/32), less i << 47: see vocabulary_kernels.cpp, whose table and polynomial these are.
static __device__ const std::uint64_t kDeviceExp2Table[32] = {
    0x3ff0000000000000U, 0x3fefd9b0d3158574U, 0x3fefb5586cf9890fU, 0x3fef9301d0125b51U,
    0x3fef72b83c7d517bU, 0x3fef54873168b9aaU, 0x3fef387a6e756238U, 0x3fef1e9df51fdee1U,
    0x3fef06fe0a31b715U, 0x3feef1a7373aa9cbU, 0x3feedea64c123422U, 0x3feece086061892dU,
    0x3feebfdad5362a27U, 0x3feeb42b569d4f82U, 0x3feeab07dd485429U, 0x3feea47eb03a5585U,
    0x3feea09e667f3bcdU, 0x3fee9f75e8ec5f74U, 0x3feea11473eb0187U, 0x3feea589994cce13U,
    0x3feeace5422aa0dbU, 0x3feeb737b0cdc5e5U, 0x3feec49182a3f090U, 0x3feed503b23e255dU,
    0x3feee89f995ad3adU, 0x3feeff76f2fb5e47U, 0x3fef199bdd85529cU, 0x3fef3720dcef9069U,
    0x3fef5818dcfba487U, 0x3fef7c97337b9b5fU, 0x3fefa4afa2a490daU, 0x3fefd0765b6e4540U,
};

// glibc's expf for x <= 0, bit by bit; the sampling arithmetic asks for no other.
__device__ inline float device_exp_f32(float x) noexcept {
  constexpr double kN = 32.0;
  constexpr double kShift = 0x1.8p52;
  const double z = static_cast<double>(x > -104.0F ? x : -104.0F) * (0x1.71547652b82fep+0 * kN);
  const double shifted = z + kShift;
  const double r = z - (shifted - kShift);
  const auto k = static_cast<std::uint64_t>(__double_as_longlong(shifted));
  const double scale =
      __longlong_as_double(static_cast<long long>(kDeviceExp2Table[k % 32U] + (k << 47)));
  const double high = fma(0x1.c6af84b912394p-5 / kN / kN / kN, r, 0x1.ebfce50fac4f3p-3 / kN / kN);
  const double low = fma(0x1.62e42ff0c52d6p-1 / kN, r, 1.0);
  return static_cast<float>(fma(high, r * r, low) * scale);
}
#endif

// The host takes libm's functions, which llama.cpp calls too. The device has the same expf; of the
// others it rounds the double result once, which may differ from libm's in the last bit.
UNPACED_HD inline float exp_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return device_exp_f32(x);
#else
  return ::expf(x);
#endif
}

UNPACED_HD inline float log_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return static_cast<float>(::log(static_cast<double>(x)));
#else
  return ::logf(x);
#endif
}

UNPACED_HD inline float log2_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return static_cast<float>(::log2(static_cast<double>(x)));
#else
  return ::log2f(x);
#endif
}

UNPACED_HD inline float pow_f32(float x, float y) noexcept {
#if defined(__CUDA_ARCH__)
  return static_cast<float>(::pow(static_cast<double>(x), static_cast<double>(y)));
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
