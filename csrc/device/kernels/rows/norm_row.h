// Rows' norms, and the rows rounded for mat-vecs, in one launch.
//
// Bits: rms_norm_f32<256 or 1024, true, added> of ggml-cuda's norm.cu (fewer or more than 1024
// values; RMS_NORM and MUL, and ADD where a row is added), then quantize_q8_1 of quantize.cu.
#pragma once

#include <cstdint>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/q8_row.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

// weight * input / rms(input) + added, of n_values floats a row; rows follow one another.
struct RowNorm {
  const float* input = nullptr;
  const float* weight = nullptr;
  const float* added = nullptr;  // nullptr: nothing
  float* out = nullptr;          // nullptr: nobody reads it; may be input or added
  float epsilon = 0;
};

// Rows of a mixture's chosen experts, each times its weight, added up in order, plus a row: what
// the first norm takes its values from (moe_weighted_reduction_f32, then ADD).
struct ExpertSum {
  const float* experts = nullptr;  // n_experts rows behind one another; nullptr: there is none
  const float* weights = nullptr;  // n_experts
  const float* added = nullptr;
  float* out = nullptr;  // may be in the memory of any of them
  std::int32_t n_experts = 0;
};
inline constexpr std::int32_t kSummedExpertsMax = 15;

struct NormRow {
  ExpertSum sum;  // of one row; the first norm has no input then
  RowNorm first;
  // A norm of the first one's values: no input of its own, no weight if there is none.
  RowNorm second;
  std::int32_t n_values = 0;
  std::int32_t n_rows = 1;
  bool next_is_ours = false;   // the next kernel waits before it reads (launch.cuh)
  Q8Block* rounded = nullptr;  // the last norm's values, q8_blocks(n_values) a row, unless there
                               // are batch records; nullptr: not wanted
  RecordRows records;          // the same rows as columns of these
};

// A row is in the registers of its threads, of a block or of a cluster of blocks.
inline constexpr std::int32_t kNormRowMax = 16384;

// Why there is no kernel for rows of so many values, as a sentence; empty: there is.
[[nodiscard]] std::string why_no_norm_row(std::int64_t n_values);

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_norm_row(const NormRow& row, const Card& card, CUstream_st* stream);

}  // namespace unpaced
