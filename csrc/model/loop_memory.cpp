#include "model/loop_memory.h"

#include <algorithm>

namespace unpaced {
namespace {

// Measured on an H200 with CUDA 13 (docs/bench/device.md), rounded up: what a layer's kernels take
// in a graph that can be launched.
constexpr std::size_t kDeviceBytesPerLayer = 72UL << 10U;
constexpr std::size_t kHostBytesPerLayer = 112UL << 10U;
// The step's own buffers, ggml's scratch memory, kernels, the driver's granularity; what the heap
// keeps on the host varies by 12 MiB from one start to the next.
constexpr std::size_t kDeviceBytes = 16UL << 20U;
constexpr std::size_t kHostBytes = 48UL << 20U;
// The same of prompt graphs: a backend of their own.
constexpr std::size_t kPromptBytes = 32UL << 20U;
// What a prompt's row has of values between kernels, llama.cpp's and ours, a value of an embedding.
constexpr std::size_t kPromptValueBytes = 112;
// Tables of sequence breakers, biases and probabilities, which each lane has.
constexpr std::size_t kLaneBytes = 4UL << 20U;
// What a layer leaves of a row for its products, rounded: norms, attention's and the feed-forward's
// row, which are three embeddings and one of up to four times as many values. Of each 1.1 bytes and
// 2.6 of a tensor record. The next layer's has the same memory.
constexpr std::size_t kRoundedBytes = 27;
// What products of more than eight rows leave for one another, a row, on a card of up to 160
// multiprocessors.
constexpr std::size_t kProductBytes = 512UL << 10U;
constexpr std::int32_t kFewRows = 8;
// A head's cells are divided among so many blocks at most, each of which leaves an F32 sum.
constexpr std::size_t kAttentionPartsMost = 64;
constexpr std::int32_t kAttentionPartCells = 128;
// The sampler's scratch memory for a token of the vocabulary, and as much on the host.
constexpr std::size_t kBytesPerToken = 64;

std::size_t n_windows(const LoopShape& shape, std::int32_t n_cells) noexcept {
  return static_cast<std::size_t>((n_cells + kWindowCells - 1) / kWindowCells) *
         static_cast<std::size_t>(shape.n_streams);
}

std::size_t n_graphs(const LoopShape& shape) noexcept {
  // In streams of their own crowds have blocks of streams, 2, 4, 8, ..., fewer than there are
  // streams.
  const auto n_lanes = static_cast<std::size_t>(shape.n_lanes);
  const std::size_t n_rows = shape.n_streams > 1 ? std::min<std::size_t>(n_lanes, 2) : n_lanes;
  const std::size_t n_steps = std::min(n_windows(shape, shape.n_cells) * n_rows, kMaxWindowGraphs);
  if (!shape.has_prompts) return n_steps;
  const std::int32_t n_cells = std::min(shape.n_cells, kMaxPromptCells);
  return n_steps + std::min(n_windows(shape, n_cells) * kPromptRows, kMaxPromptGraphs);
}

// Where kernels of ours keep what goes from one to another.
std::size_t n_phase_bytes(const LoopShape& shape) noexcept {
  const std::size_t n_values =
      static_cast<std::size_t>(shape.n_own_rows) * static_cast<std::size_t>(shape.n_embd);
  const auto n_parts = static_cast<std::size_t>(shape.n_cells / kAttentionPartCells);
  const std::size_t n_part_bytes =
      shape.rows_as_alone ? std::min(n_parts, kAttentionPartsMost) * sizeof(float) : 0;
  const bool keeps_sums = shape.n_own_rows > kFewRows && !shape.rows_as_alone;
  return n_values * (kRoundedBytes + n_part_bytes) +
         (keeps_sums ? static_cast<std::size_t>(shape.n_own_rows) * kProductBytes : 0);
}

std::size_t n_prompt_bytes(const LoopShape& shape) noexcept {
  if (!shape.has_prompts) return 0;
  return kPromptBytes + kMaxPromptTokens * (kProductBytes + static_cast<std::size_t>(shape.n_embd) *
                                                                kPromptValueBytes);
}

}  // namespace

LoopMemory loop_memory(const LoopShape& shape) noexcept {
  const std::size_t n_layers = n_graphs(shape) * static_cast<std::size_t>(shape.n_layer + 1);
  const auto n_lanes = static_cast<std::size_t>(shape.n_lanes);
  const std::size_t n_row_bytes =
      static_cast<std::size_t>(shape.n_vocab) * kBytesPerToken * n_lanes +
      (n_lanes - 1) * kLaneBytes;
  // Slots with a stream of their own have one token each, whose attention reads the cache as it is.
  const bool copies = shape.n_lanes > 1 && shape.n_streams == 1;
  const std::size_t n_copied = copies ? static_cast<std::size_t>(shape.n_cells) : 0;
  return {.device = kDeviceBytes + n_layers * kDeviceBytesPerLayer + n_row_bytes +
                    n_prompt_bytes(shape) + n_copied * shape.cell_copy_bytes + n_phase_bytes(shape),
          .host = kHostBytes + n_layers * kHostBytesPerLayer + n_row_bytes};
}

}  // namespace unpaced
