#include "slots/state_pieces.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "slots/byte_reader.h"
#include "slots/kv_cells.h"

namespace unpaced {
namespace {

constexpr std::size_t kSequence = 4;            // its id, behind a magic number
constexpr std::size_t kPrefix = 8;              // both of them
constexpr std::size_t kCount = kPrefix + 4;     // of cells, behind the number of streams
constexpr std::size_t kRecords = kCount + 4;    // of the cells
constexpr std::size_t kPlainRecord = 12;        // position, number of sequences, sequence
constexpr std::uint32_t kMaxElementBytes = 64;  // of values that lie in columns

void write_word(std::span<std::byte> bytes, std::size_t at, std::int32_t word) noexcept {
  std::memcpy(bytes.data() + at, &word, sizeof word);
}

std::int32_t read_word(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::int32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

}  // namespace

std::optional<StatePieces> StatePieces::of(std::span<const std::byte> state, std::size_t n_cells) {
  if (state.size() < kRecords || read_word(state, kPrefix) != 1) return std::nullopt;
  const std::optional<KvCells> cells = find_kv_cells(state, kPrefix, n_cells);
  if (!cells || cells->n != n_cells) return std::nullopt;
  StatePieces made;
  ByteReader reader(state, kRecords);
  std::size_t head_at = 0;
  const auto add = [&](std::size_t unit, std::size_t n_runs) {
    const auto head = state.subspan(head_at, reader.at() - head_at);
    made.pieces_.push_back({.head = {head.begin(), head.end()}, .unit = unit, .n_runs = n_runs});
    reader.skip(std::uint64_t{unit} * n_runs * n_cells);
    head_at = reader.at();
  };
  add(cells->n_bytes, 1);
  const bool is_transposed = reader.read<std::uint32_t>() != 0;
  const auto n_layers = reader.read<std::uint32_t>();
  while (!reader.is_over() && reader.at() < state.size()) {
    const std::size_t n_tensors = made.pieces_.size() - 1;
    if (n_tensors == 2 * std::size_t{n_layers}) return std::nullopt;
    static_cast<void>(reader.read<std::int32_t>());  // its type
    if (is_transposed && n_tensors >= n_layers) {
      const auto unit = reader.read<std::uint32_t>();
      const auto n_runs = reader.read<std::uint32_t>();
      if (unit == 0 || unit > kMaxElementBytes || n_runs == 0) return std::nullopt;
      // Before the product of all three, which may be more than a word holds.
      if (std::uint64_t{unit} * n_cells > state.size() / n_runs) return std::nullopt;
      add(unit, n_runs);
    } else {
      const auto unit = reader.read<std::uint64_t>();
      if (unit == 0 || unit > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
      add(static_cast<std::size_t>(unit), 1);
    }
  }
  if (reader.is_over() || made.pieces_.size() - 1 < n_layers || n_layers == 0) return std::nullopt;
  made.n_keys_ = n_layers;
  const auto position = [&](std::size_t i) {
    return read_word(state, kRecords + i * cells->n_bytes);
  };
  std::size_t n_in_order = 0;
  while (n_in_order < n_cells && position(n_in_order) == static_cast<std::int32_t>(n_in_order)) {
    ++n_in_order;
  }
  if (n_in_order == n_cells) return made;
  made.order_.resize(n_cells);
  for (std::size_t i = 0; i < n_cells; ++i) {
    made.order_[static_cast<std::size_t>(position(i))] = static_cast<std::uint32_t>(i);
  }
  return made;
}

std::size_t StatePieces::n_bytes(std::size_t n) const noexcept {
  std::size_t n_bytes = 0;
  for (const Piece& piece : pieces_) n_bytes += piece.head.size() + piece.unit * piece.n_runs * n;
  return n_bytes;
}

std::size_t StatePieces::runs_of(std::size_t piece, std::size_t n) const noexcept {
  std::size_t at = 0;
  for (std::size_t i = 0; i < piece; ++i) {
    at += pieces_[i].head.size() + pieces_[i].unit * pieces_[i].n_runs * n;
  }
  return at + pieces_[piece].head.size();
}

bool StatePieces::has_rows(std::span<const std::uint32_t> rows) const noexcept {
  const std::size_t n_tensors = pieces_.size() - 1;
  if (rows.size() != n_tensors || pieces_.front().unit != kPlainRecord) return false;
  if (n_tensors != n_keys_ && n_tensors != 2 * n_keys_) return false;
  bool are_same = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool has_values = n_tensors > n_keys_;
    const std::size_t tensor = has_values ? i / 2 + (i % 2) * n_keys_ : i;
    const Piece& piece = pieces_[1 + tensor];
    are_same = are_same && piece.n_runs == 1 && piece.unit == rows[i];
  }
  return are_same;
}

void StatePieces::write_heads(std::span<std::byte> state, std::size_t n) const noexcept {
  std::size_t at = 0;
  for (const Piece& piece : pieces_) {
    std::ranges::copy(piece.head, state.begin() + static_cast<std::ptrdiff_t>(at));
    at += piece.head.size() + piece.unit * piece.n_runs * n;
  }
  write_word(state, kCount, static_cast<std::int32_t>(n));
}

void StatePieces::copy(const Cells<const std::byte>& from, const Cells<std::byte>& to,
                       std::size_t n) const noexcept {
  std::size_t from_at = 0;
  std::size_t to_at = 0;
  for (const Piece& piece : pieces_) {
    from_at += piece.head.size();
    to_at += piece.head.size();
    for (std::size_t run = 0; run < piece.n_runs; ++run) {
      std::memcpy(to.state.data() + to_at + to.first * piece.unit,
                  from.state.data() + from_at + from.first * piece.unit, n * piece.unit);
      from_at += piece.unit * from.n;
      to_at += piece.unit * to.n;
    }
  }
}

template <class CellOf>
std::int32_t StatePieces::end_of_run(std::int32_t first, std::int32_t end,
                                     CellOf cell_of) noexcept {
  std::int32_t next = first + 1;
  while (next < end && cell_of(next) == cell_of(first) + static_cast<std::size_t>(next - first)) {
    ++next;
  }
  return next;
}

template <class CellOf, class CopyRun>
void StatePieces::for_each_row(std::span<const std::uint32_t> rows, std::int32_t first,
                               std::int32_t n, std::size_t n_cells, CellOf cell_of,
                               CopyRun copy_run) const noexcept {
  const bool has_values = rows.size() > n_keys_;
  std::size_t before = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t tensor = has_values ? i / 2 + (i % 2) * n_keys_ : i;
    const std::size_t in_part = before * static_cast<std::size_t>(n);
    const std::size_t in_state = runs_of(1 + tensor, n_cells);
    before += rows[i];
    for (std::int32_t begin = first; begin < first + n;) {
      const std::int32_t end = end_of_run(begin, first + n, cell_of);
      copy_run(in_part + static_cast<std::size_t>(begin - first) * rows[i],
               in_state + cell_of(begin) * rows[i],
               static_cast<std::size_t>(end - begin) * rows[i]);
      begin = end;
    }
  }
}

bool StatePieces::put(std::span<const std::byte> part, std::span<const std::uint32_t> rows,
                      std::int32_t first, std::int32_t n, std::int32_t sequence,
                      std::span<std::byte> state, std::size_t n_cells) const noexcept {
  const std::size_t n_record = pieces_.front().unit;
  const auto n_part = static_cast<std::size_t>(n);
  if (!rows.empty()) {
    const auto in_order = [](std::int32_t i) { return static_cast<std::size_t>(i); };
    for_each_row(rows, first, n, n_cells, in_order,
                 [&](std::size_t in_part, std::size_t in_state, std::size_t n_bytes) {
                   std::memcpy(state.data() + in_state, part.data() + in_part, n_bytes);
                 });
  } else {
    if (part.size() != n_bytes(n_part) || read_word(part, kCount) != n) return false;
    // Its cells lie in the order of the cache.
    const auto position = [&](std::int32_t i) {
      return static_cast<std::size_t>(
          read_word(part, kRecords + static_cast<std::size_t>(i) * n_record));
    };
    for (std::int32_t begin = 0; begin < n;) {
      const std::int32_t end = end_of_run(begin, n, position);
      const auto n_run = static_cast<std::size_t>(end - begin);
      const std::size_t to = position(begin);
      if (to < static_cast<std::size_t>(first) ||
          to + n_run > static_cast<std::size_t>(first) + n_part) {
        return false;
      }
      copy({.state = part, .n = n_part, .first = static_cast<std::size_t>(begin)},
           {.state = state, .n = n_cells, .first = to}, n_run);
      begin = end;
    }
  }
  write_word(state, kSequence, sequence);
  for (std::int32_t i = first; i < first + n; ++i) {
    const std::size_t record = kRecords + static_cast<std::size_t>(i) * n_record;
    if (!rows.empty()) {
      write_word(state, record, i);
      write_word(state, record + 4, 1);
    }
    write_word(state, record + n_record - 4, sequence);
  }
  return true;
}

void StatePieces::take(std::span<const std::byte> state, std::size_t n_cells, std::int32_t first,
                       std::int32_t n, std::span<const std::uint32_t> rows,
                       std::span<std::byte> part) const noexcept {
  const auto cell_of = [this](std::int32_t position) {
    const auto i = static_cast<std::size_t>(position);
    return order_.empty() ? i : std::size_t{order_[i]};
  };
  if (!rows.empty()) {
    for_each_row(rows, first, n, n_cells, cell_of,
                 [&](std::size_t in_part, std::size_t in_state, std::size_t n_bytes) {
                   std::memcpy(part.data() + in_part, state.data() + in_state, n_bytes);
                 });
    return;
  }
  const auto n_part = static_cast<std::size_t>(n);
  write_heads(part, n_part);
  for (std::int32_t begin = first; begin < first + n;) {
    const std::int32_t end = end_of_run(begin, first + n, cell_of);
    copy({.state = state, .n = n_cells, .first = cell_of(begin)},
         {.state = part, .n = n_part, .first = static_cast<std::size_t>(begin - first)},
         static_cast<std::size_t>(end - begin));
    begin = end;
  }
}

}  // namespace unpaced
