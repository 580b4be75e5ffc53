// The random stream of llama-server: the 32-bit Mersenne Twister (Matsumoto and Nishimura, 1998)
// and the way in which libstdc++ makes uniform numbers in [0, 1) out of it.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/host_device.h"

namespace unpaced {

class Mt19937 {
 public:
  UNPACED_HD explicit Mt19937(std::uint32_t value = 5489U) noexcept { seed(value); }

  UNPACED_HD void seed(std::uint32_t value) noexcept {
    state_[0] = value;
    for (std::int32_t i = 1; i < kSize; ++i) {
      const std::uint32_t previous = state_[i - 1];
      state_[i] = 1812433253U * (previous ^ (previous >> 30)) + static_cast<std::uint32_t>(i);
    }
    next_ = kSize;
  }

  UNPACED_HD std::uint32_t next_u32() noexcept {
    if (next_ == kSize) refill();
    std::uint32_t y = state_[next_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
  }

  // std::uniform_real_distribution<double>: two draws, (g1 + g2 * 2^32) / 2^64.
  UNPACED_HD double next_f64() noexcept {
    const double low = next_u32();
    const double high = next_u32();
    const double u = (low + high * 4294967296.0) / 18446744073709551616.0;
    return u < 1.0 ? u : 0x1.fffffffffffffp-1;
  }

  // std::uniform_real_distribution<float>: one draw, g / 2^32.
  UNPACED_HD float next_f32() noexcept {
    const float u = static_cast<float>(next_u32()) / 4294967296.0F;
    return u < 1.0F ? u : 0x1.fffffep-1F;
  }

 private:
  static constexpr std::int32_t kSize = 624;
  static constexpr std::int32_t kShift = 397;

  UNPACED_HD static std::uint32_t twist(std::uint32_t upper, std::uint32_t lower) noexcept {
    const std::uint32_t y = (upper & 0x80000000U) | (lower & 0x7fffffffU);
    return (y >> 1) ^ ((y & 1U) != 0U ? 0x9908b0dfU : 0U);
  }

  UNPACED_HD void refill() noexcept {
    for (std::int32_t i = 0; i < kSize - kShift; ++i) {
      state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
    }
    for (std::int32_t i = kSize - kShift; i < kSize - 1; ++i) {
      state_[i] = state_[i + kShift - kSize] ^ twist(state_[i], state_[i + 1]);
    }
    state_[kSize - 1] = state_[kShift - 1] ^ twist(state_[kSize - 1], state_[0]);
    next_ = 0;
  }

  std::uint32_t state_[kSize];
  std::int32_t next_;
};

}  // namespace unpaced
