#include "slots/kv_cells.h"

#include <vector>

#include "slots/byte_reader.h"

namespace unpaced {
namespace {

constexpr std::uint32_t kMaxStreams = 256;  // LLAMA_MAX_SEQ
// Position, count and sequence id; models with 2-D positions or n-gram tables have three more
// words.
constexpr std::size_t kRecordBytes[] = {12, 24};

// The streams of other slots are empty.
std::optional<std::uint32_t> read_count(ByteReader& reader) {
  const auto n_streams = reader.read<std::uint32_t>();
  if (n_streams == 0 || n_streams > kMaxStreams) return std::nullopt;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < n_streams && count == 0; ++i) count = reader.read<std::uint32_t>();
  if (reader.is_over() || count == 0) return std::nullopt;
  return count;
}

bool are_cells(std::span<const std::byte> state, const KvCells& cells, std::size_t n_tokens) {
  ByteReader reader(state, cells.begin);
  std::vector<bool> is_taken(n_tokens);
  for (std::uint32_t i = 0; i < cells.n; ++i) {
    const auto position = reader.read<std::uint32_t>();
    if (reader.read<std::uint32_t>() != 1) return false;
    reader.skip(cells.n_bytes - 8);
    if (reader.is_over() || position >= n_tokens || is_taken[position]) return false;
    is_taken[position] = true;
  }
  return true;
}

}  // namespace

std::optional<std::uint32_t> n_kv_cells(std::span<const std::byte> state, std::size_t begin) {
  ByteReader reader(state, begin);
  return read_count(reader);
}

std::optional<KvCells> find_kv_cells(std::span<const std::byte> state, std::size_t begin,
                                     std::size_t n_tokens) {
  ByteReader reader(state, begin);
  const std::optional<std::uint32_t> count = read_count(reader);
  if (!count || *count < 2 || *count > n_tokens) return std::nullopt;
  for (const std::size_t n_bytes : kRecordBytes) {
    const KvCells cells{.begin = reader.at(), .n_bytes = n_bytes, .n = *count};
    if (are_cells(state, cells, n_tokens)) return cells;
  }
  return std::nullopt;
}

}  // namespace unpaced
