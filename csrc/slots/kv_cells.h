// Where a sequence's state, as llama.cpp writes it, has its cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace unpaced {

// The head of a llama_kv_cache in a state (llama.cpp 0c1e57098 src/llama-kv-cache.cpp:2120-2330).
struct KvCells {
  std::size_t begin =
      0;  // of the first cell's record: position, count of sequences, [ext], sequence
  std::size_t n_bytes = 0;  // of a record
  std::uint32_t n = 0;

  // The first record's sequence id: llama.cpp reads it and looks away.
  [[nodiscard]] std::size_t sequence_id() const noexcept { return begin + n_bytes - 4; }
};

// How many cells the cache that begins at `begin` says it has; none where that is no such cache.
[[nodiscard]] std::optional<std::uint32_t> n_kv_cells(std::span<const std::byte> state,
                                                      std::size_t begin);

// The cells of the cache that begins at `begin`; none where that is no such cache, or a damaged
// one. A sequence of one cell is not told apart: none.
[[nodiscard]] std::optional<KvCells> find_kv_cells(std::span<const std::byte> state,
                                                   std::size_t begin, std::size_t n_tokens);

}  // namespace unpaced
