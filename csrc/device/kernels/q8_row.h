// An activation row as ggml's mat-vecs of quantised weights read it: blocks of q8_1.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unpaced {

// ggml's block_q8_1: the scale and the sum of the 32 floats (F16 each), and what they are rounded
// to.
struct Q8Block {
  std::uint32_t scale_and_sum;
  std::int8_t values[32];
};
static_assert(sizeof(Q8Block) == 36);

inline constexpr std::int32_t kQ8Values = 32;
// ggml pads a row to a multiple of so many values, zeros behind its end.
inline constexpr std::int32_t kQ8RowPadding = 512;

[[nodiscard]] constexpr std::int64_t q8_blocks(std::int64_t n_values) noexcept {
  return (n_values + kQ8RowPadding - 1) / kQ8RowPadding * (kQ8RowPadding / kQ8Values);
}

// Rows as columns of records: of batch records where there are eights (rows/batch_records.h), else
// of tensor records (rows/tensor_records.h).
struct RecordRows {
  std::uint8_t* data = nullptr;  // nullptr: nobody reads them
  std::int32_t n_eights = 0;
};

}  // namespace unpaced
