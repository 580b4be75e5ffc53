// What a warp multiplies at once by tensor cores: sixteen rows by eight columns, eight values of
// each, as PTX's mma.m16n8k8 has them among the lanes.
//
// A step of ggml's order is a sum of eight products of a weight and an input, times a scale: the
// integers' sum is exact however it is made, so tensor cores may make it, of F16 numbers into an
// F32 one. The roundings behind it are done lane by lane (pinned_float.h).
#pragma once

#include <cstdint>

#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

inline constexpr int kTileRows = 16;
inline constexpr int kTileColumns = 8;

// Lane i's place: it brings values 2 * pair() and the next one of rows group() and group() + 8, and
// of column group(); it gets four sums.
class TileLane {
 public:
  static constexpr int kSums = 4;

  UNPACED_BOTH explicit TileLane(int lane) : lane_(lane) {}

  UNPACED_BOTH int group() const { return lane_ / 4; }
  UNPACED_BOTH int pair() const { return lane_ % 4; }
  // Which row and column sum `i` is of.
  UNPACED_BOTH int row_of(int i) const { return group() + 8 * (i / 2); }
  UNPACED_BOTH int column_of(int i) const { return 2 * pair() + i % 2; }

 private:
  int lane_;
};

// What lies at a multiple of its size, as one load takes it.
struct alignas(16) FourFloats {
  float of[4];
};
struct alignas(8) TwoFloats {
  float of[2];
};
struct alignas(8) TwoWords {
  std::uint32_t of[2];
};

// Bytes kFirst (0 or 2) and the next one of a word, each 128 too large, as F16 numbers.
template <int kFirst>
UNPACED_BOTH std::uint32_t halves_of_bytes(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  const std::uint32_t large = __byte_perm(word, 0x64646464U, kFirst == 0 ? 0x4140 : 0x4342);
  std::uint32_t halves;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(large), "r"(0x64806480U));
  return halves;
#else
  const auto value = [word](int i) {
    return static_cast<float>(static_cast<int>(word >> (8 * (kFirst + i)) & 0xffU) - 128);
  };
  return two_halves(value(0), value(1));
#endif
}

}  // namespace unpaced::mat_vec
