// Rounded rows as tensor cores take them: what a mat-vec's warps bring to their products, in the
// order in which lanes read it (mat_vec/block/tile.h).
//
// A record has two neighbouring blocks of q8_1, 64 values, of eight columns: the inputs of a
// quarter of a block of Q4_K. Of each block ggml's thread t of four has words t and t + 4.
#pragma once

#include <cstdint>

#include "device/kernels/q8_row.h"

#if defined(__CUDACC__)
#define UNPACED_RECORD __host__ __device__ __forceinline__
#else
#define UNPACED_RECORD inline
#endif

namespace unpaced {

inline constexpr std::int32_t kRecordColumns = 8;
inline constexpr std::int32_t kRecordValues = 2 * kQ8Values;

// Bytes in a record: F16 values; for each two columns the blocks' scales; and of each thread, for
// each two columns, the blocks' sums of its values times their scales.
inline constexpr std::int32_t kRecordScalesAt = kRecordColumns * kRecordValues * 2;
inline constexpr std::int32_t kRecordSumsAt = kRecordScalesAt + 16 * kRecordColumns / 2;
inline constexpr std::int32_t kRecordBytes = kRecordSumsAt + 4 * 16 * kRecordColumns / 2;

// Records of longer rows leave no room for weights in a block's shared memory, of any card.
inline constexpr std::int64_t kRecordValuesMost = 8192;

[[nodiscard]] constexpr std::int64_t record_bytes(std::int64_t n_values) noexcept {
  return q8_blocks(n_values) / 2 * kRecordBytes;
}

// Where value `i` (0 to 31) of block `block` (0 or 1) lies: of each block lane 4 * column + pair
// has two values of each thread. So a block's values of a column lie together.
UNPACED_RECORD std::int32_t record_value_at(int column, int block, int i) {
  const int word = i / 4, thread = word % 4, pair = 2 * (word / 4) + i % 4 / 2;
  return 512 * block + 16 * (4 * column + pair) + 4 * thread + 2 * (i % 2);
}
UNPACED_RECORD std::int32_t record_scale_at(int column, int block) {
  return kRecordScalesAt + 16 * (column / 2) + 8 * block + 4 * (column % 2);
}
UNPACED_RECORD std::int32_t record_sum_at(int column, int block, int thread) {
  return kRecordSumsAt + 64 * thread + 16 * (column / 2) + 8 * block + 4 * (column % 2);
}

}  // namespace unpaced
