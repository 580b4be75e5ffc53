// Where a row's total goes, and what is added to it.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

struct RowOutput {
  const float* added = nullptr;
  float* out = nullptr;  // nullptr: another lane stores it, or nobody
};

// Of row `r` of a chunk. Of gate and up, which are rows in turn, up has the result. `Rows` as
// ChunkRows has it.
template <int kColumns, class Rows>
UNPACED_BOTH RowOutput output_of(const Task& task, const Rows& rows, const Chunks& chunk, int r,
                                 int column, bool stores) {
  const TaskMatrix& matrix = rows.matrix_of(chunk, r);
  const std::int32_t row = rows.number_of(chunk, r);
  if (row >= matrix.n_rows || (kColumns > 1 && column >= task.n_columns)) return {};
  RowOutput output = {matrix.added, nullptr};
  if (output.added != nullptr) {
    output.added += row;
    if (rows.has_experts())
      output.added += rows.expert_id(chunk) * static_cast<std::int64_t>(matrix.n_rows);
    if constexpr (kColumns > 1) output.added += column * matrix.added_stride;
  }
  if (stores && (!rows.paired() || (r & 1) == 0)) {
    output.out = matrix.out + row;
    if (rows.has_experts()) output.out += chunk.part() * matrix.out_stride;
    if constexpr (kColumns > 1) output.out += column * matrix.out_stride;
  }
  return output;
}

}  // namespace unpaced::mat_vec
