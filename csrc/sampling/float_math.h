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

// The host takes libm's functions, which llama.cpp calls too. The device rounds the double result
// once; that may differ from libm's float functions in the last bit.
UNPACED_HD inline float exp_f32(float x) noexcept {
#if defined(__CUDA_ARCH__)
  return static_cast<float>(::exp(static_cast<double>(x)));
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
