// Who has what in the attention kernel: ggml's warps, lanes and rows, and what a block's threads
// share.
#pragma once

#include <cstdint>

#include "device/kernels/head_attention.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::attention {

inline constexpr int kLanes = 32;
inline constexpr int kWarps = 4;
inline constexpr int kThreads = kLanes * kWarps;
inline constexpr int kRowLanes = 8;                 // lanes that share a row
inline constexpr int kGroups = kLanes / kRowLanes;  // rows that a warp has at once
inline constexpr int kTurns = kLanes / kGroups;     // until it has had its 32
inline constexpr int kPieceValues = kRowLanes * 8;  // values that 16 bytes a lane are
inline constexpr int kPieceBytes = 2 * kPieceValues;
inline constexpr int kFetchedBytes = 64;           // that a prefetch brings
inline constexpr std::uint32_t kHidden = 0xfc00;   // minus infinity
inline constexpr float kLowest = -1.70141173e38F;  // -FLT_MAX / 2
inline constexpr float kOffset = 3.0F * 0.6931F;   // FATTN_KQ_MAX_OFFSET

static_assert(kThreads == kAttentionCells);
static_assert(kRowLanes == 8 && kTurns == 8);

struct alignas(16) Words16 {
  std::uint32_t words[4];
};

// Two F16 numbers' values: exact.
UNPACED_BOTH void two_values(std::uint32_t word, float& low, float& high) {
#if defined(__CUDA_ARCH__)
  asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b; }"
      : "=f"(low), "=f"(high)
      : "r"(word));
#else
  low = mat_vec::half_value(word & 0xffffU);
  high = mat_vec::half_value(word >> 16);
#endif
}

// Where parts of a head meet.
struct PartsPlace {
  const float* sums;    // a head's values each
  const PartTop* tops;  // one each
};

// What a block's threads share.
template <int kSize>
struct Shared {
  alignas(16) float sums[kWarps][kGroups][kSize];
  float powers[kWarps][kLanes];
  float tops[kWarps];
};

// A value of the head, by its number among those that a lane has of a row.
UNPACED_BOTH int value_of(int place_in_row, int i) {
  return i / 8 * kPieceValues + place_in_row * 8 + i % 8;
}

}  // namespace unpaced::attention
