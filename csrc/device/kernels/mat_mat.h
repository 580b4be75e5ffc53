// Matrices times 9 to 128 vectors, in launches by format or pair of formats, with the bits of
// ggml's products of so many columns (mmq.cuh: mul_mat_q and mul_mat_q_stream_k_fixup). Which sums
// are made one after the other and which are added up later hangs on the card's number of
// multiprocessors there, and here.
//
// A product is described as mat-vecs are: MatVec's n_columns and order_columns are the number of
// vectors, input_records are batch records of them (rows/batch_records.h), there are no experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/mat_vec.h"

namespace unpaced {

inline constexpr std::int32_t kMatMatColumns = 128;

// What a launch needs beside its input. Launches that follow one another may have the same.
struct MatMatMemory {
  std::byte* sums = nullptr;          // mat_mat_sum_bytes()
  std::uint32_t* arrivals = nullptr;  // kMatMatArrivals, zero before the first launch
};

// For matrices of 262 144 rows together, the largest vocabularies.
inline constexpr std::int32_t kMatMatArrivals = 32768;

[[nodiscard]] std::size_t mat_mat_sum_bytes(std::int32_t n_columns, const Card& card) noexcept;

// Why this cannot be computed with ggml's bits on the card, as a sentence; empty: it can.
[[nodiscard]] std::string why_no_mat_mat(const MatVec& product, const Card& card);

// A launch for each format, or for two that have kernels together; of gate and up with most columns
// each has two. Throws std::runtime_error if one cannot be made.
void enqueue_mat_mat(const MatVec& product, const MatMatMemory& memory, const Card& card,
                     CUstream_st* stream);

}  // namespace unpaced
