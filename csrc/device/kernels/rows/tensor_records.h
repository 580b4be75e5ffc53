// Rounded rows as tensor cores take them: what a mat-vec's warps bring to their products, in the
// order in which lanes read it (mat_vec/block/tile.h).
//
// A record has two neighbouring blocks of q8_1, 64 values, of eight columns: the inputs of a
// quarter of a block of Q4_K. Of each block ggml's thread t of four has words t and t + 4.
//
// Rows are kept in shared memory whole. So there are records of two kinds: of halves, which need no
// conversion, and of bytes, for rows of which those would leave no room for weights.
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
// Fewer columns have quicker kernels, which read none.
inline constexpr std::int32_t kRecordColumnsLeast = 5;
inline constexpr std::int32_t kRecordValues = 2 * kQ8Values;

// Where lane 4 * column + pair's values lie among a block's of 32: it has two of each thread.
UNPACED_RECORD constexpr std::int32_t record_place(std::int32_t column, std::int32_t i) {
  return 4 * column + 2 * (i / 16) + i % 4 / 2;
}
// For each two columns the blocks' scales lie together.
UNPACED_RECORD constexpr std::int32_t record_scale_place(std::int32_t column, std::int32_t block) {
  return 16 * (column / 2) + 8 * block + 4 * (column % 2);
}

// F16 values; scales; and of each thread the blocks' sums of its values times their scales.
struct HalfRecord {
  static constexpr std::int32_t kBlockBytes = kRecordColumns * kQ8Values * 2;
  static constexpr std::int32_t kScalesAt = 2 * kBlockBytes;
  static constexpr std::int32_t kSumsAt = kScalesAt + 16 * kRecordColumns / 2;
  static constexpr std::int32_t kThreadSums = 16 * kRecordColumns / 2;
  static constexpr std::int32_t kBytes = kSumsAt + 4 * kThreadSums;

  // Of value i (0 to 31) of block `block` (0 or 1).
  UNPACED_RECORD static constexpr std::int32_t value_at(std::int32_t column, std::int32_t block,
                                                        std::int32_t i) {
    return kBlockBytes * block + 16 * record_place(column, i) + 4 * (i / 4 % 4) + 2 * (i % 2);
  }
  UNPACED_RECORD static constexpr std::int32_t scale_at(std::int32_t column, std::int32_t block) {
    return kScalesAt + record_scale_place(column, block);
  }
  UNPACED_RECORD static constexpr std::int32_t sum_at(std::int32_t column, std::int32_t block,
                                                      std::int32_t thread) {
    return kSumsAt + kThreadSums * thread + record_scale_place(column, block);
  }
};

// Bytes, each 128 too large; scales.
struct ByteRecord {
  static constexpr std::int32_t kBlockBytes = kRecordColumns * kQ8Values;
  static constexpr std::int32_t kScalesAt = 2 * kBlockBytes;
  static constexpr std::int32_t kBytes = kScalesAt + 16 * kRecordColumns / 2;

  UNPACED_RECORD static constexpr std::int32_t value_at(std::int32_t column, std::int32_t block,
                                                        std::int32_t i) {
    return kBlockBytes * block + 8 * record_place(column, i) + 2 * (i / 4 % 4) + i % 2;
  }
  UNPACED_RECORD static constexpr std::int32_t scale_at(std::int32_t column, std::int32_t block) {
    return kScalesAt + record_scale_place(column, block);
  }
};

// Longer rows have records of bytes, and still longer ones none.
inline constexpr std::int64_t kHalfRecordValuesMost = 8192;
inline constexpr std::int64_t kRecordValuesMost = 19456;

UNPACED_RECORD constexpr bool has_byte_records(std::int64_t n_values) {
  return n_values > kHalfRecordValuesMost;
}

// Of eight columns of so many values.
[[nodiscard]] UNPACED_RECORD constexpr std::int64_t record_bytes(std::int64_t n_values) noexcept {
  return (n_values + kQ8RowPadding - 1) / kQ8RowPadding * (kQ8RowPadding / kRecordValues) *
         (has_byte_records(n_values) ? ByteRecord::kBytes : HalfRecord::kBytes);
}

// Of any number of columns: eights, one behind the other.
[[nodiscard]] constexpr std::int64_t records_bytes(std::int64_t n_values,
                                                   std::int64_t n_columns) noexcept {
  return (n_columns + kRecordColumns - 1) / kRecordColumns * record_bytes(n_values);
}

}  // namespace unpaced
