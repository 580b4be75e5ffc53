// Rows of floats as mat-vecs of quantised weights take them, from memory or after the product of
// gate and up.
#pragma once

#include <cstdint>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/q8_row.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

// Bits: quantize_q8_1 of ggml-cuda's quantize.cu.
struct RowRounding {
  const float* input = nullptr;
  std::int64_t input_stride = 0;  // from a row to the next, in floats
  std::int32_t n_values = 0;      // a row
  std::int32_t n_rows = 1;
  bool next_is_ours = false;   // the next kernel waits before it reads (launch.cuh)
  Q8Block* rounded = nullptr;  // rows q8_blocks(n_values) apart, unless in batch records
  RecordRows records;          // the rows as their columns
};

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_row_rounding(const RowRounding& rows, const Card& card, CUstream_st* stream);

// activation(gate) * up, of rows that have the gate's n_values first. Bits: unary_gated_op_kernel,
// swiglu_oai_kernel and swiglu_clamp_kernel of unary.cu, then quantize_q8_1.
struct GateRow {
  const float* input = nullptr;
  std::int32_t n_values = 0;
  std::int32_t n_rows = 1;  // behind one another, in and out
  GluKind glu = GluKind::kSwiglu;
  float alpha = 0;             // kSwigluOai
  float limit = 0;             // kSwigluOai, kSwigluClamp
  bool next_is_ours = false;   // as RowRounding has it
  float* out = nullptr;        // nullptr: nobody reads it
  Q8Block* rounded = nullptr;  // q8_blocks(n_values) a row; nullptr: not wanted
  RecordRows records;          // as RowRounding has them
};

void enqueue_gate_row(const GateRow& row, const Card& card, CUstream_st* stream);

}  // namespace unpaced
