// Rounded rows as products of nine columns and more take them (mat_mat.h): in the order in which a
// warp's lanes bring them to tensor cores. Bits: quantize_mmq_q8_1 of ggml-cuda's quantize.cu,
// whose scale and sum are kept as F16, for formats with a least value, and the scale as F32.
//
// A record has 256 values of eight columns, eight groups of 32 each.
#pragma once

#include <cstdint>

#include "device/kernels/rows/tensor_records.h"

namespace unpaced {

struct BatchRecord {
  static constexpr std::int32_t kValues = 256;
  static constexpr std::int32_t kGroupBytes = kRecordColumns * kQ8Values;
  static constexpr std::int32_t kScalesAt = kValues / kQ8Values * kGroupBytes;
  static constexpr std::int32_t kSumsAt = kScalesAt + 128;
  static constexpr std::int32_t kFloatsAt = kSumsAt + 128;
  static constexpr std::int32_t kBytes = kFloatsAt + 256;

  // Lane 4 * column + t has words t and t + 4 of a group.
  UNPACED_RECORD static constexpr std::int32_t value_at(std::int32_t column, std::int32_t group,
                                                        std::int32_t i) {
    return kGroupBytes * group + 8 * (4 * column + i % 16 / 4) + 4 * (i / 16) + i % 4;
  }
  // Lane 4 * column + t has groups 2 * t and 2 * t + 1.
  UNPACED_RECORD static constexpr std::int32_t scale_at(std::int32_t column, std::int32_t group) {
    return kScalesAt + 16 * column + 2 * group;
  }
  UNPACED_RECORD static constexpr std::int32_t sum_at(std::int32_t column, std::int32_t group) {
    return kSumsAt + 16 * column + 2 * group;
  }
  UNPACED_RECORD static constexpr std::int32_t float_at(std::int32_t column, std::int32_t group) {
    return kFloatsAt + 4 * (kRecordColumns * group + column);
  }
};

UNPACED_RECORD constexpr std::int32_t record_eights(std::int32_t n_columns) {
  return (n_columns + kRecordColumns - 1) / kRecordColumns;
}

// Of rows of whole records: a record's eights lie together.
[[nodiscard]] UNPACED_RECORD constexpr std::int64_t batch_record_bytes(std::int64_t n_values,
                                                                       std::int32_t n_columns) {
  return n_values / BatchRecord::kValues * record_eights(n_columns) * BatchRecord::kBytes;
}

}  // namespace unpaced
