// Random blocks of weights and rows of inputs; where asked for, with the numbers that are easily
// got wrong: zeros of both signs, subnormals, the largest ones, infinity, NaN.
#pragma once

#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "ggml_order.h"

namespace unpaced::test {

class Random {
 public:
  explicit Random(std::uint32_t seed) : bits_(seed) {}
  std::uint32_t below(std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(bits_);
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(below(256)); }
  float real() { return std::uniform_real_distribution<float>(-3, 3)(bits_); }

  float wild_real() {
    static constexpr float kWild[] = {0.0F,
                                      -0.0F,
                                      std::numeric_limits<float>::denorm_min(),
                                      1e-38F,
                                      3e38F,
                                      std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN()};
    return below(64) == 0 ? kWild[below(std::size(kWild))] : real();
  }

  // An F16 number; `wild`: often one of those that are easily got wrong.
  std::uint16_t half(bool wild, bool sign) {
    static constexpr std::uint16_t kWild[] = {0x0000, 0x0001, 0x03ff, 0x0400, 0x3c00,
                                              0x7bff, 0x7c00, 0x7e00, 0x2e66};
    std::uint16_t bits = wild && below(3) == 0 ? kWild[below(std::size(kWild))]
                                               : static_cast<std::uint16_t>(0x2000 + below(0x1000));
    if (sign && below(2) == 0) bits |= 0x8000;
    return bits;
  }

 private:
  std::mt19937 bits_;
};

inline void put_half(std::uint8_t* at, std::uint16_t bits) { std::memcpy(at, &bits, 2); }

// Random blocks; where the scales lie is the format's.
inline void fill_block(const GgmlFormat& format, std::uint8_t* block, bool wild, Random& random) {
  for (int i = 0; i < format.block_bytes; ++i) block[i] = random.byte();
  switch (format.format) {
    case WeightFormat::kQ4_K:
    case WeightFormat::kQ5_K:
      put_half(block, random.half(wild, true));
      put_half(block + 2, random.half(wild, true));
      break;
    case WeightFormat::kQ6_K:
      put_half(block + 208, random.half(wild, true));
      break;
    case WeightFormat::kMxfp4:
      if (!wild) block[0] = static_cast<std::uint8_t>(120 + random.below(10));
      break;
    case WeightFormat::kF32:
    case WeightFormat::kBf16: {
      const float value = wild ? random.wild_real() : random.real();
      const std::size_t dropped = format.format == WeightFormat::kF32 ? 0 : 2;
      std::memcpy(block, reinterpret_cast<const std::uint8_t*>(&value) + dropped, 4 - dropped);
      break;
    }
    default:
      put_half(block, random.half(wild, true));
  }
}

// The first place in `bytes` with an address that is a multiple of 16, and 16 bytes before it.
inline std::uint8_t* aligned_after_16(std::vector<std::uint8_t>& bytes) {
  const std::size_t beyond = reinterpret_cast<std::uintptr_t>(bytes.data()) & 15;
  return bytes.data() + (32 - beyond);
}

}  // namespace unpaced::test
