// What the GPU's decode loop takes of memory beside what llama.cpp lays out for the model.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unpaced {

// llama.cpp's attention reads cells in multiples of this (llama_kv_cache::get_n_kv): the windows
// that have a graph each.
inline constexpr std::int32_t kWindowCells = 256;
// 40 960 cells of one stream; then the oldest makes room.
inline constexpr std::size_t kMaxWindowGraphs = 160;

// Prompts of 2 to so many tokens have CUDA graphs of their own, which read so many cells at most.
inline constexpr std::int32_t kMaxPromptTokens = 128;
inline constexpr std::int32_t kMaxPromptCells = 8192;
// Every number of rows in each of some windows; then the oldest makes room.
inline constexpr std::size_t kMaxPromptGraphs = 64;

// Up to here each number of tokens has a graph; above, eight numbers share one, whose rows behind
// the last token are that token's once more.
inline constexpr std::int32_t kExactPromptTokens = 8;

[[nodiscard]] constexpr std::int32_t prompt_rows(std::int32_t n_tokens) noexcept {
  const bool is_exact = n_tokens <= kExactPromptTokens;
  return is_exact ? n_tokens
                  : (n_tokens + kExactPromptTokens - 1) / kExactPromptTokens * kExactPromptTokens;
}

// Which of the numbers of rows that are, from 2 on.
[[nodiscard]] constexpr std::size_t prompt_rows_index(std::int32_t n_rows) noexcept {
  const std::int32_t index = n_rows <= kExactPromptTokens
                                 ? n_rows - 2
                                 : kExactPromptTokens - 3 + n_rows / kExactPromptTokens;
  return static_cast<std::size_t>(index);
}
inline constexpr std::size_t kPromptRows = prompt_rows_index(kMaxPromptTokens) + 1;

// Rows of a step that kernels of ours take in the order of ggml's for so many.
inline constexpr std::int32_t kMaxOwnRows = 32;

struct LoopShape {
  std::int32_t n_layer = 0;
  std::int32_t n_vocab = 0;
  std::int32_t n_cells = 0;  // of a stream of the KV cache
  std::int32_t n_streams = 1;
  std::int32_t n_lanes = 1;  // sequences that decode together
  bool has_prompts = false;  // short prompts have graphs of their own
  // Rows of a step whose phases are computed by kernels of ours, of so many values; and whether
  // attention is among these for more than one.
  std::int32_t n_own_rows = 0;
  std::int32_t n_embd = 0;
  bool rows_as_alone = false;
  // A cell of one layer in F16, K and V: where attention of several tokens copies a quantised
  // cache's window first. 0: it does not.
  std::size_t cell_copy_bytes = 0;
};

// Bytes.
struct LoopMemory {
  std::size_t device = 0;
  std::size_t host = 0;
};

// Once texts have filled every slot's context and prompts of every length have come. Requests with
// a grammar have graphs of their own, which are not counted: as many again at most.
[[nodiscard]] LoopMemory loop_memory(const LoopShape& shape) noexcept;

}  // namespace unpaced
