// Matrices times one to eight vectors, in one launch, with the bits of ggml's mat-vec kernels
// (mmvq.cu: mul_mat_vec_q, mmvf.cu: mul_mat_vec_f) for one column, whatever the number of columns,
// or for as many as are asked for (order_columns).
//
// All pointers are the device's. Nothing but weights may be read before the kernels that were
// enqueued earlier have ended (griddepcontrol.wait), and every block waits for them before it ends.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/q8_row.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

// ggml's type of the same name.
enum class WeightFormat : std::uint8_t {
  kF32,
  kF16,
  kBf16,
  kQ4_0,
  kQ5_0,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4Xs,
  kMxfp4,
};

// What becomes of a row's sum. ggml computes a product by itself or together with what follows it,
// and the two differ in one bit: together, a missing bias is 0.0 and turns -0 into +0.
enum class MatVecEnd : std::uint8_t {
  kPlain,  // stored as it is: ggml's kernel without fusion
  kAdded,  // sum + added[row]: a bias or a residual
  kGlu,    // matrices 0 and 1 are gate and up: (up + its added or 0) * activation(gate + its or 0)
};

// ggml's GLU operations of the same name that its mat-vecs compute.
enum class GluKind : std::uint8_t { kSwiglu, kGeglu, kSwigluOai, kSwigluClamp };

struct MatVecMatrix {
  const void* weights = nullptr;
  WeightFormat format = WeightFormat::kF32;
  std::int32_t n_rows = 0;
  std::int64_t row_bytes = 0;     // from one row to the next
  std::int64_t expert_bytes = 0;  // from one expert's matrix to the next
  const float* added = nullptr;   // n_rows a column; of an expert n_rows * its number further on
  float* out = nullptr;           // n_rows a column, or expert; kGlu: gate has none
  std::int64_t out_stride = 0;    // from a column's or expert's output to the next, in floats
  std::int64_t added_stride = 0;  // as out_stride, of `added`; 0: all columns have the same
};

inline constexpr std::int32_t kMatVecMatrices = 3;
inline constexpr std::int32_t kMatVecColumns = 8;

struct MatVec {
  // All have the same number of columns of weights, n_values, and the same input. Formats may
  // differ (attention's V is often stored with more bits than Q and K).
  std::array<MatVecMatrix, kMatVecMatrices> matrices;
  std::int32_t n_matrices = 1;
  std::int32_t n_values = 0;  // a row's weights: K
  MatVecEnd end = MatVecEnd::kPlain;
  GluKind glu = GluKind::kSwiglu;
  float glu_limit = 0;  // kSwigluClamp

  // The input: one of these, as the weights ask for it. Vectors are input_stride apart, in blocks
  // or floats; rounded ones of several columns begin at a multiple of 16 bytes.
  const Q8Block* input_q8 = nullptr;  // quantised weights
  const float* input = nullptr;       // F32, F16 and BF16 weights
  std::int64_t input_stride = 0;
  // The same vectors for tensor cores (tensor_records.h), at a multiple of 16 bytes; nullptr: a
  // kernel that wants them so makes it of input_q8.
  const std::uint8_t* input_records = nullptr;
  std::int32_t n_columns = 1;  // vectors, 1 to kMatVecColumns
  // Whose bits: those of ggml's kernel for so many columns. It sums a row in another order where it
  // has five or more, and adds nothing in the place of what is missing where it has two or more.
  std::int32_t order_columns = 1;

  // The experts of a mixture: n_experts products, of the matrices that ids[0 … n_experts - 1] name.
  // n_columns and order_columns are 1; with expert_has_input each has a vector of its own,
  // input_stride apart.
  const std::int32_t* experts = nullptr;
  std::int32_t n_experts = 0;
  bool expert_has_input = false;
  // The launch before, or one before that with only ours between, has the same experts: who they
  // are is known when this one begins.
  bool experts_are_known = false;

  bool next_is_ours = false;  // the next kernel waits before it reads (launch.cuh)

  // Which of the builds for this shape, below n_mat_vec_variants(); 0 is the one to take
  // unmeasured.
  std::int32_t variant = 0;
};

// Why this cannot be computed with ggml's bits on the card, as a sentence; empty: it can.
[[nodiscard]] std::string why_no_mat_vec(const MatVec& mat_vec, const Card& card);

// More than one where the columns' inputs do not fit into shared memory: each reads the weights.
[[nodiscard]] std::int32_t n_mat_vec_launches(const MatVec& mat_vec, const Card& card);

// Products of such weights by five columns and more read records of their inputs.
[[nodiscard]] bool takes_records(WeightFormat format, const Card& card);

[[nodiscard]] std::int32_t n_mat_vec_variants(const MatVec& mat_vec, const Card& card);

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_mat_vec(const MatVec& mat_vec, const Card& card, CUstream_st* stream);

}  // namespace unpaced
