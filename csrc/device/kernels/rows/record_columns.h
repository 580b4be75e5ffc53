// Some of a product's columns, with their records: what one of several launches has.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/tensor_records.h"

namespace unpaced {

[[nodiscard]] inline MatVec columns_of(const MatVec& mat_vec, std::int32_t first, std::int32_t n) {
  MatVec part = mat_vec;
  part.n_columns = n;
  const bool has_records =
      mat_vec.input_records != nullptr && first % kRecordColumns == 0 && n >= kRecordColumnsLeast;
  part.input_records =
      has_records ? mat_vec.input_records + first / kRecordColumns * record_bytes(mat_vec.n_values)
                  : nullptr;
  if (part.input_q8 != nullptr) part.input_q8 += first * mat_vec.input_stride;
  if (part.input != nullptr) part.input += first * mat_vec.input_stride;
  for (MatVecMatrix& matrix : part.matrices) {
    if (matrix.out != nullptr) matrix.out += first * matrix.out_stride;
    if (matrix.added != nullptr) matrix.added += first * matrix.added_stride;
  }
  return part;
}

}  // namespace unpaced
