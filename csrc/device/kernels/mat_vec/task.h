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
  const std::uint8_t* input;  // blocks of q8_1, or floats
  const std::int32_t* experts;
  std::int64_t input_stride;  // bytes from a column, or an expert's vector, to the next
  std::int32_t n_matrices;
  std::int32_t n_chunks;
  std::int32_t chunks_per_expert;  // of the only matrix; 0: no experts
  std::int32_t n_inputs;           // vectors in shared memory: columns, or experts with their own
  std::int32_t n_columns;          // up to the kernel's; the others are not stored
  std::int32_t n_blocks;           // of weights, in a row
  std::int32_t n_steps;            // of 32 lanes, in a row
  std::int32_t slice_steps;        // steps of a row that are fetched at once
  std::int32_t n_slices;           // of a row
  std::int32_t slot_bytes;         // a row's slice in shared memory: 15 in front, 16 behind
  std::int32_t n_stages;           // of the ring
  std::uint32_t inputs_at;         // shared memory: inputs, then rings, then sums
  std::uint32_t rings_at;
  std::uint32_t sums_at;
  float glu_limit;
  bool next_is_ours;
  bool adds_zero;  // in the place of what is not added
  MatVecEnd end;
  GluKind glu;
};

// Two in one launch: the first `n_first_blocks` blocks of threads do the first.
struct TaskPair {
  Task first;
  Task second;
  std::int32_t n_first_blocks;
};

// Which rows a chunk is: `n_rows` (the kernel's kRows) of one matrix, or rows of gate and up in
// turn, up first.
struct Chunk {
  std::int32_t matrix;
  std::int32_t expert;     // which of the used ones
  std::int32_t expert_id;  // of all
  std::int32_t first_row;  // of outputs
};

UNPACED_BOTH Chunk chunk_at(const Task& task, std::int32_t chunk, int outputs_per_chunk) {
  Chunk found = {0, 0, 0, 0};
  if (task.chunks_per_expert != 0) {
    found.expert = chunk / task.chunks_per_expert;
    chunk -= found.expert * task.chunks_per_expert;
  } else {
    while (found.matrix + 1 < task.n_matrices && chunk >= task.matrices[found.matrix].chunks_end)
      ++found.matrix;
    if (found.matrix > 0) chunk -= task.matrices[found.matrix - 1].chunks_end;
  }
  found.first_row = chunk * outputs_per_chunk;
  return found;
}

}  // namespace unpaced::mat_vec
