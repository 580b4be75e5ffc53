#include "device/kernels/ggml_device.cuh"
#include "device/kernels/launch.cuh"
#include "device/kernels/rows/rounding.cuh"
#include "device/kernels/rows/row_rounding.h"

namespace unpaced {
namespace {

constexpr unsigned kThreads = 256;

// A thread has one value of the row, zeros behind its end included.
LaunchShape shape_of(std::int32_t n_values, std::int32_t n_rows) {
  const auto n_rounded = static_cast<unsigned>(n_with_padding(n_values));
  return {dim3((n_rounded + kThreads - 1) / kThreads, static_cast<unsigned>(n_rows)),
          dim3(kThreads), 0};
}

__device__ int column() { return static_cast<int>(blockIdx.x * kThreads + threadIdx.x); }

__device__ Q8Block* block_of(Q8Block* rounded, int n_values) {
  return rounded + (blockIdx.y * n_with_padding(n_values) + column()) / kQ8Values;
}

__device__ RecordColumn column_of(const RecordRows& records, int n_values) {
  return record_column(records, static_cast<int>(blockIdx.y), n_values);
}

__global__ void __launch_bounds__(kThreads) round_rows(const RowRounding rows) {
  let_later_kernels_start(rows.next_is_ours);
  await_earlier_kernels();
  if (column() >= n_with_padding(rows.n_values)) return;
  const float value =
      column() < rows.n_values ? rows.input[blockIdx.y * rows.input_stride + column()] : 0.0f;
  round_block(value, block_of(rows.rounded, rows.n_values), column_of(rows.records, rows.n_values),
              column() / kQ8Values);
  end_writes(rows.next_is_ours);
}

// A thread has four values of a row, whose length is a multiple of a batch record's.
__global__ void __launch_bounds__(kThreads) round_rows_to_batch(const RowRounding rows) {
  static_assert(BatchRecord::kValues % (4 * 32) == 0);  // so that whole warps are behind its end
  let_later_kernels_start(rows.next_is_ours);
  await_earlier_kernels();
  const int first = 4 * column();
  if (first >= rows.n_values) return;
  const float* row = rows.input + blockIdx.y * rows.input_stride;
  round_to_batch(*reinterpret_cast<const float4*>(row + first),
                 column_of(rows.records, rows.n_values), first / kQ8Values);
  end_writes(rows.next_is_ours);
}

__device__ float gated(const GateRow& row, float gate, float up) {
  switch (row.glu) {
    case GluKind::kSwiglu:
      return ggml_cuda_op_silu_single(gate) * up;
    case GluKind::kGeglu:
      return ggml_cuda_op_gelu_single(gate) * up;
    case GluKind::kSwigluOai:
      return ggml_cuda_op_swiglu_oai_single(gate, up, row.alpha, row.limit);
    case GluKind::kSwigluClamp:
      return ggml_cuda_op_swiglu_clamp_single(gate, up, row.limit);
  }
  return 0.0f;
}

__global__ void __launch_bounds__(kThreads) gate_row(const GateRow row) {
  let_later_kernels_start(row.next_is_ours);
  await_earlier_kernels();
  if (column() >= n_with_padding(row.n_values)) return;
  float value = 0.0f;
  if (column() < row.n_values) {
    const float* input = row.input + std::int64_t{2} * blockIdx.y * row.n_values;
    value = gated(row, input[column()], input[row.n_values + column()]);
    if (row.out != nullptr) row.out[std::int64_t{blockIdx.y} * row.n_values + column()] = value;
  }
  if (row.rounded != nullptr) {
    round_block(value, block_of(row.rounded, row.n_values), column_of(row.records, row.n_values),
                column() / kQ8Values);
  }
  end_writes(row.next_is_ours);
}

}  // namespace

void enqueue_row_rounding(const RowRounding& rows, const Card& card, CUstream_st* stream) {
  if (rows.records.n_eights > 0) {
    const LaunchShape shape = shape_of(rows.n_values / 4, rows.n_rows);
    return launch(round_rows_to_batch, shape, card, stream, rows);
  }
  launch(round_rows, shape_of(rows.n_values, rows.n_rows), card, stream, rows);
}

void enqueue_gate_row(const GateRow& row, const Card& card, CUstream_st* stream) {
  launch(gate_row, shape_of(row.n_values, row.n_rows), card, stream, row);
}

}  // namespace unpaced
