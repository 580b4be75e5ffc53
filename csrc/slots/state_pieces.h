// A sequence's state as llama.cpp writes it, in pieces: what is there once, and what each cell has.
// With them a state is put together from its parts, and cut into parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace unpaced {

// Of a single KV cache with one stream (llama.cpp 0c1e57098 src/llama-kv-cache.cpp:2065-2240), the
// prefix of llama_state_seq_get_data with it. Its cells have the positions 0 .. n - 1.
class StatePieces {
 public:
  // `state`: of n_cells cells, at least 2. None: it is of another kind, or damaged.
  [[nodiscard]] static std::optional<StatePieces> of(std::span<const std::byte> state,
                                                     std::size_t n_cells);

  // Of a state of n cells.
  [[nodiscard]] std::size_t n_bytes(std::size_t n) const noexcept;

  // A part has the cells of some positions that follow one another, in either of two forms: a state
  // of its own, or rows of bytes, which only who made them can read. Then `rows` has the bytes that
  // a cell has in each tensor: a layer's keys and its values in turn, or keys alone.
  [[nodiscard]] bool has_rows(std::span<const std::uint32_t> rows) const noexcept;

  // All of a state of n cells but what its cells have.
  void write_heads(std::span<std::byte> state, std::size_t n) const noexcept;
  // The part of n cells, the first one's position being `first`, takes its place in `state`, which
  // has n_cells. Cells are of `sequence` and in the order of their positions. False: it is no such
  // part.
  [[nodiscard]] bool put(std::span<const std::byte> part, std::span<const std::uint32_t> rows,
                         std::int32_t first, std::int32_t n, std::int32_t sequence,
                         std::span<std::byte> state, std::size_t n_cells) const noexcept;
  // The other way, from the state that these pieces are of. `part`: its bytes are those of n cells.
  void take(std::span<const std::byte> state, std::size_t n_cells, std::int32_t first,
            std::int32_t n, std::span<const std::uint32_t> rows,
            std::span<std::byte> part) const noexcept;

 private:
  // Bytes that are there once, then n_runs times `unit` bytes of each cell.
  struct Piece {
    std::vector<std::byte> head;
    std::size_t unit = 0;
    std::size_t n_runs = 1;
  };
  // Cells of a state of n, from `first` on.
  template <class Byte>
  struct Cells {
    std::span<Byte> state;
    std::size_t n;
    std::size_t first;
  };

  void copy(const Cells<const std::byte>& from, const Cells<std::byte>& to,
            std::size_t n) const noexcept;
  // Calls `copy_run(its place in the part, its place in the state, bytes)` for each tensor's cells
  // that follow one another in both, of a part that is rows. `cell_of`: a position's in the state.
  template <class CellOf, class CopyRun>
  void for_each_row(std::span<const std::uint32_t> rows, std::int32_t first, std::int32_t n,
                    std::size_t n_cells, CellOf cell_of, CopyRun copy_run) const noexcept;
  // One past the positions from `first` on, before `end`, whose cells follow one another.
  template <class CellOf>
  [[nodiscard]] static std::int32_t end_of_run(std::int32_t first, std::int32_t end,
                                               CellOf cell_of) noexcept;
  // Where a piece's runs begin in a state of n cells.
  [[nodiscard]] std::size_t runs_of(std::size_t piece, std::size_t n) const noexcept;

  std::vector<Piece> pieces_;         // cells' records, then tensors: keys, values
  std::size_t n_keys_ = 0;            // tensors
  std::vector<std::uint32_t> order_;  // the cell of each position; empty: the same number
};

}  // namespace unpaced
