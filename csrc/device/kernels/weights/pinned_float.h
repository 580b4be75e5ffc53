// Arithmetic whose every rounding is written down, the same on the device and on the host.
//
// ggml-cuda is compiled with -use_fast_math: products are fused with sums where the compiler finds
// any, and subnormal floats count as zero. A kernel that must have its bits cannot leave the first
// to the compiler, so each operation here is one instruction; the host's does what the device's
// does, and that is how the tests without a GPU compute.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define UNPACED_BOTH __host__ __device__ __forceinline__
#define UNPACED_UNROLL _Pragma("unroll")
#else
#include <cmath>
#define UNPACED_BOTH inline
#define UNPACED_UNROLL
#endif

namespace unpaced::mat_vec {

UNPACED_BOTH float as_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

UNPACED_BOTH std::uint32_t as_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

#if !defined(__CUDA_ARCH__)
// What the device's instructions make of a subnormal number, going in or coming out.
inline float flushed(float value) {
  const std::uint32_t bits = as_bits(value);
  return (bits & 0x7f800000U) == 0 ? as_float(bits & 0x80000000U) : value;
}
#endif

UNPACED_BOTH float product(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return flushed(flushed(a) * flushed(b));
#endif
}

UNPACED_BOTH float sum(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return flushed(flushed(a) + flushed(b));
#endif
}

// a * b + c, rounded once.
UNPACED_BOTH float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return flushed(std::fmaf(flushed(a), flushed(b), flushed(c)));
#endif
}

// An F16 number's value: exact, also of subnormal ones.
UNPACED_BOTH float half_value(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<unsigned short>(bits)));
  return value;
#else
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return as_float(sign | wide << 23 | mantissa << 13);
#endif
}

// sum + the products of four pairs of signed bytes.
UNPACED_BOTH std::int32_t byte_dot(std::uint32_t a, std::uint32_t b, std::int32_t start) {
#if defined(__CUDA_ARCH__)
  return __dp4a(static_cast<int>(a), static_cast<int>(b), start);
#else
  for (int i = 0; i < 4; ++i)
    start += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
  return start;
#endif
}

// The same of bytes without a sign and of signed ones.
UNPACED_BOTH std::int32_t unsigned_dot(std::uint32_t a, std::uint32_t b, std::int32_t start) {
#if defined(__CUDA_ARCH__)
  std::int32_t total;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(total) : "r"(a), "r"(b), "r"(start));
  return total;
#else
  for (int i = 0; i < 4; ++i)
    start += static_cast<std::uint8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
  return start;
#endif
}

// Integers become floats without a conversion: a sum that starts at kBias is, read as a float,
// kBiasValue + sum, exactly, while |sum| < 2^22. What takes the bias off again can multiply on the
// way (`scaled`): every product of weights' and inputs' integers stays below 2^24, so it is exact.
inline constexpr std::int32_t kBias = 0x4B400000;
inline constexpr float kBiasValue = 12582912.0F;

UNPACED_BOTH float unbiased(std::int32_t biased) {
  return sum(as_float(static_cast<std::uint32_t>(biased)), -kBiasValue);
}

// The factor by which a biased integer is multiplied, and what takes the bias off.
struct Factor {
  float value;
  float bias;
};

UNPACED_BOTH Factor factor_of(float value) { return {value, product(value, -kBiasValue)}; }

// (biased - bias) * factor, exact.
UNPACED_BOTH float scaled(std::int32_t biased, const Factor& factor) {
  return fused(as_float(static_cast<std::uint32_t>(biased)), factor.value, factor.bias);
}

// Four of the eight bytes of two words, `which` naming one by each of its four-bit digits.
UNPACED_BOTH std::uint32_t chosen_bytes(std::uint32_t low, std::uint32_t high,
                                        std::uint32_t which) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(low, high, which);
#else
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i)
    chosen |= static_cast<std::uint32_t>(both >> (8 * (which >> (4 * i) & 7)) & 0xff) << (8 * i);
  return chosen;
#endif
}

// Byte `i` of a word as a float, 0 to 255, times 2^kPower: 2^(23 + kPower) has it in its last bits.
template <int i, int kPower = 0>
UNPACED_BOTH float byte_value(std::uint32_t word) {
  constexpr std::uint32_t kOne = std::uint32_t{127 + 23 + kPower} << 23;
#if defined(__CUDA_ARCH__)
  const std::uint32_t biased = __byte_perm(word, kOne, 0x7540 | i);
#else
  const std::uint32_t biased = kOne | ((word >> (8 * i)) & 0xffU);
#endif
  return sum(as_float(biased), -as_float(kOne));
}

// Words as they lie in memory, whatever their alignment. Reads aligned words that hold at least one
// of the bytes asked for. All are shifted right by `bits` (0 to 7): what comes in at a word's top
// is the next one's, or anything.
template <int n>
UNPACED_BOTH void load_words(const std::uint8_t* from, std::uint32_t (&words)[n], int bits = 0) {
#if defined(__CUDA_ARCH__)
  const std::uint32_t beyond =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from)) & 3;
  const auto* aligned = reinterpret_cast<const std::uint32_t*>(from - beyond);
  std::uint32_t low = aligned[0];
  UNPACED_UNROLL
  for (int i = 0; i < n; ++i) {
    const std::uint32_t high = i + 1 < n || beyond != 0 ? aligned[i + 1] : 0;
    words[i] = __funnelshift_r(low, high, 8 * beyond + bits);
    low = high;
  }
#else
  std::memcpy(words, from, sizeof words);
  for (int i = 0; i < n; ++i) {
    const std::uint32_t next = i + 1 < n ? words[i + 1] : 0;
    words[i] = static_cast<std::uint32_t>((std::uint64_t{next} << 32 | words[i]) >> bits);
  }
#endif
}

// Four words at a multiple of 16 bytes.
UNPACED_BOTH void load_four_words(const std::uint8_t* from, std::uint32_t (&words)[4]) {
#if defined(__CUDA_ARCH__)
  const uint4 four = *reinterpret_cast<const uint4*>(from);
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
#else
  std::memcpy(words, from, sizeof words);
#endif
}

UNPACED_BOTH void store_four_words(const std::uint32_t (&words)[4], std::uint8_t* to) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
#else
  std::memcpy(to, words, sizeof words);
#endif
}

// A word at an even address.
UNPACED_BOTH std::uint32_t load_even_word(const std::uint8_t* from) {
#if defined(__CUDA_ARCH__)
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  return __byte_perm(halves[0], halves[1], 0x5410);
#else
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
#endif
}

// What another kernel wrote a while ago, past the first cache, which may have what was there
// before.
UNPACED_BOTH std::int32_t load_fresh(const std::int32_t* from) {
#if defined(__CUDA_ARCH__)
  return __ldcg(from);
#else
  return *from;
#endif
}

// Something at an address that is a multiple of its size.
template <class T>
UNPACED_BOTH T load_aligned(const std::uint8_t* from) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const T*>(from);
#else
  T value = {};
  std::memcpy(&value, from, sizeof value);
  return value;
#endif
}

}  // namespace unpaced::mat_vec
