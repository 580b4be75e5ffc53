// What a launch is told: the matrices, cut into what a team of warps does at once, and how much
// shared memory each part has.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

// One matrix, or one expert's of a mixture.
struct TaskMatrix {
  const std::uint8_t* weights;
  const float* added;
  float* out;
  std::int64_t out_stride;
  std::int64_t added_stride;
  std::int64_t expert_bytes;
  std::int32_t row_bytes;
  std::int32_t n_rows;
  std::int32_t chunks_end;  // chunks of this matrix and of those before it
};

struct Task {
  TaskMatrix matrices[kMatVecMatrices];
  const std::uint8_t* input;    // blocks of q8_1, or floats
  const std::uint8_t* records;  // the same for tensor cores; nullptr: they are not made
  const std::int32_t* experts;
  std::int64_t input_stride;  // bytes from a column, or an expert's vector, to the next
  std::int32_t n_matrices;
  std::int32_t n_chunks;
  std::int32_t n_experts;    // of those used, by turns a chunk of the only matrix; 0: none
  std::int32_t n_inputs;     // vectors in shared memory: columns, or experts with their own
  bool has_one_expert;       // each block: one vector of those that experts have is its own
  std::int32_t n_columns;    // up to the kernel's; the others are not stored
  std::int32_t n_blocks;     // of weights, in a row
  std::int32_t n_steps;      // of 32 lanes, in a row
  std::int32_t slice_steps;  // steps of a row that are fetched at once
  std::int32_t n_slices;     // of a row
  std::int32_t slot_bytes;   // a row's slice in shared memory: 15 in front, 16 behind
  std::int32_t n_stages;     // of the ring
  std::uint32_t inputs_at;   // shared memory: inputs, then rings, then sums
  std::uint32_t rings_at;
  std::uint32_t sums_at;
  float glu_limit;
  bool next_is_ours;
  bool waits_for_experts;  // the kernel before says which they are
  bool adds_zero;          // in the place of what is not added
  MatVecEnd end;
  GluKind glu;
};

// Two in one launch: the first `n_first_blocks` blocks of threads do the first.
struct TaskPair {
  Task first;
  Task second;
  std::int32_t n_first_blocks;
};

// The chunks of a team, one after the other. A chunk is some rows of one matrix, or rows of gate
// and up in turn, up first. Chunks are numbered matrix by matrix; of experts by turns, so that
// where as many blocks take turns as are a multiple of the experts, each has chunks of one.
class Chunks {
 public:
  UNPACED_BOTH Chunks(const Task& task, std::int32_t first) : number_(first) { find_part(task); }

  UNPACED_BOTH bool is_one(const Task& task) const { return number_ < task.n_chunks; }
  UNPACED_BOTH void advance(const Task& task, std::int32_t by) {
    number_ += by;
    find_part(task);
  }

  // The matrix, where there are no experts; which of the used experts, else.
  UNPACED_BOTH std::int32_t part() const { return part_; }
  // Its number in its part.
  UNPACED_BOTH std::int32_t in_part(const Task& task) const {
    if (task.n_experts != 0) return number_ / task.n_experts;
    if (part_ == 0) return number_;
    return number_ - task.matrices[part_ - 1].chunks_end;
  }

 private:
  UNPACED_BOTH void find_part(const Task& task) {
    if (task.n_experts != 0) {
      part_ = number_ % task.n_experts;
      return;
    }
    while (number_ >= end_ && end_ < task.n_chunks) {
      part_ += end_ > 0 ? 1 : 0;
      end_ = task.matrices[part_].chunks_end;
    }
  }

  std::int32_t number_;
  std::int32_t part_ = 0;
  std::int32_t end_ = 0;  // of the part
};

}  // namespace unpaced::mat_vec
