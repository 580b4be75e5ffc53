// Where a chunk's rows are, of weights and of outputs.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/task.h"
#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// Chunks of kRows rows.
template <class Format, int kRows>
class ChunkRows {
  using Steps = Step<Format>;
  static constexpr int kOutputsGlu = kRows / 2 > 0 ? kRows / 2 : 1;

 public:
  // Slices of such formats lie at multiples of 16 bytes, as they are fetched.
  static constexpr bool kIsAligned = Format::kAlignment % 16 == 0 && Format::kBytes % 16 == 0;

  UNPACED_BOTH explicit ChunkRows(const Task& task) : task_(task) {}

  UNPACED_BOTH bool paired() const { return task_.end == MatVecEnd::kGlu; }
  UNPACED_BOTH bool has_experts() const { return task_.n_experts != 0; }
  // Of all, not of those used.
  UNPACED_BOTH std::int32_t expert_id(const Chunks& chunk) const {
    return has_experts() ? load_fresh(task_.experts + chunk.part()) : 0;
  }
  // The matrix of a chunk's row `r`; gate is matrix 0.
  UNPACED_BOTH const TaskMatrix& matrix_of(const Chunks& chunk, int r) const {
    return task_.matrices[paired() ? 1 - (r & 1) : has_experts() ? 0 : chunk.part()];
  }
  // Which of the matrix's rows it is; behind the last one there are none.
  UNPACED_BOTH std::int32_t number_of(const Chunks& chunk, int r) const {
    const std::int32_t number = chunk.in_part(task_);
    return paired() ? number * kOutputsGlu + r / 2 : number * kRows + r;
  }
  // Where it begins. Rows behind the last one are the last one again.
  UNPACED_BOTH const std::uint8_t* begin_of(const Chunks& chunk, int r) const {
    const TaskMatrix& matrix = matrix_of(chunk, r);
    const std::int32_t asked = number_of(chunk, r);
    const std::int32_t row = asked < matrix.n_rows ? asked : matrix.n_rows - 1;
    const std::uint8_t* begin = matrix.weights + static_cast<std::int64_t>(row) * matrix.row_bytes;
    if (has_experts()) begin += expert_id(chunk) * matrix.expert_bytes;
    return begin;
  }

  UNPACED_BOTH std::int32_t slice_bytes(std::int32_t slice) const {
    const std::int32_t most = task_.slice_steps * Steps::kBlocks;
    const std::int32_t left = task_.n_blocks - slice * most;
    return (left < most ? left : most) * Format::kBytes;
  }

 private:
  const Task& task_;
};

}  // namespace unpaced::mat_vec
