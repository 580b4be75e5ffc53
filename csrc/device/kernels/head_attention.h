// Attention of one query over an F16 cache: a launch for all heads, from the scores to the row as
// the next mat-vec takes it. Or of a few queries, each over a cache of its own and with the bits
// that it has by itself.
//
// Bits: flash_attn_ext_vec<size, 1, F16, F16> of ggml-cuda's fattn-vec.cuh and
// flash_attn_combine_results of fattn-common.cuh, then quantize_q8_1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device/kernels/card.h"
#include "device/kernels/q8_row.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

// What one of a head's parts has found: the highest score, and the sum of all scores' powers.
struct PartTop {
  float top;
  float total;
};

// Rows of the cache lie `stride` bytes apart, the heads of a row `head_stride`, the caches of two
// queries `row_stride`.
struct CachedHeads {
  const std::uint8_t* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;
};

// What queries have by themselves. No kernel of the step writes it.
struct QueryWindows {
  const std::int32_t* positions = nullptr;     // a query each: its token's, in a cache of its own
  const std::int64_t* cell_numbers = nullptr;  // a query each: its token's cell, of all caches
  std::int64_t cache_cells = 1;                // of a cache
  std::int32_t cells = 1;                      // by so many windows grow
  const std::uint16_t* parts = nullptr;        // a window each: ggml divides it by so many
};

struct HeadAttention {
  const float* queries = nullptr;
  std::int64_t query_stride = 0;  // from a head to the next, in floats
  CachedHeads keys;
  CachedHeads values;
  // F16, added to the scores; no kernel of the step writes it.
  const std::uint16_t* mask = nullptr;
  const float* sinks = nullptr;  // one score a head that no cell has; nullptr: none
  std::int32_t head_size = 0;
  std::int32_t n_heads = 0;
  std::int32_t n_sharing = 1;  // queries that share the K and V of a head
  std::int32_t n_cells = 0;
  std::int32_t n_parts = 1;  // ggml divides the cells by so many blocks: the sums hang on it
  float scale = 1;           // of the scores
  float cap = 0;             // cap * tanh(score); 0: none. `scale` is divided by it already
  // Several queries: n_cells and n_parts are the most that one of them has.
  std::int32_t n_rows = 1;
  std::int64_t query_row_stride = 0;    // from a query to the next, in floats
  std::int64_t mask_row_stride = 0;     // in values
  std::int64_t rounded_row_stride = 0;  // in blocks
  std::int64_t scratch_row_bytes = 0;   // attention_scratch_bytes()
  QueryWindows windows;
  bool next_is_ours = false;   // the next kernel waits before it reads (launch.cuh)
  float* out = nullptr;        // heads behind one another; nullptr: nobody reads them
  Q8Block* rounded = nullptr;  // all heads of a query as one row; nullptr: not wanted
  // The queries' rows as columns of tensor records; nullptr: nobody reads them.
  std::uint8_t* records = nullptr;
  std::int32_t record_column = 0;  // of the first query
  // Where parts meet that have no other way.
  std::byte* scratch = nullptr;  // attention_scratch_bytes() a query
  // One a head of each query; zero before the launch, and after it.
  std::uint32_t* arrivals = nullptr;
};

inline constexpr std::int32_t kAttentionHeadsMost = 256;
// Cells that a block takes at once, as ggml's.
inline constexpr std::int32_t kAttentionCells = 128;

[[nodiscard]] inline std::size_t attention_scratch_bytes(std::int32_t n_heads,
                                                         std::int32_t head_size,
                                                         std::int32_t n_parts) {
  const std::size_t part = static_cast<std::size_t>(head_size) * sizeof(float) + sizeof(PartTop);
  return part * static_cast<std::size_t>(n_heads) * static_cast<std::size_t>(n_parts);
}

// In larger windows ggml's kernels are faster (docs/bench/device-kernels.md).
inline constexpr std::int32_t kAttentionCellsMost = 1024;

// Why there is no kernel, as a sentence; empty: there is.
[[nodiscard]] std::string why_no_head_attention(const HeadAttention& attention);

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_head_attention(const HeadAttention& attention, const Card& card, CUstream_st* stream);

}  // namespace unpaced
