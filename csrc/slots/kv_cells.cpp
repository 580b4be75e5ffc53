#include "slots/kv_cells.h"

#include <ggml.h>

#include <cstring>
#include <vector>

namespace unpaced {
namespace {

constexpr std::uint32_t kMaxStreams = 256;  // LLAMA_MAX_SEQ
// Position, count and sequence id; models with 2-D positions or n-gram tables have three more
// words.
constexpr std::size_t kRecordBytes[] = {12, 24};

// Reads forward; a read beyond the end gives zeros and is remembered.
class Reader {
 public:
  Reader(std::span<const std::byte> state, std::size_t at) : state_(state), at_(at) {}

  template <class T>
  T read() noexcept {
    T value{};
    if (const auto bytes = skip(sizeof(T)); !bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }
  std::span<const std::byte> skip(std::uint64_t n) noexcept {
    if (n > state_.size() - at_) {
      is_over_ = true;
      return {};
    }
    const auto bytes = state_.subspan(at_, static_cast<std::size_t>(n));
    at_ += bytes.size();
    return bytes;
  }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

 private:
  std::span<const std::byte> state_;
  std::size_t at_;
  bool is_over_ = false;
};

// How many cells the cache at the reader's place says it has. The streams of other slots are empty.
std::optional<std::uint32_t> read_count(Reader& reader) {
  const auto n_streams = reader.read<std::uint32_t>();
  if (n_streams == 0 || n_streams > kMaxStreams) return std::nullopt;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < n_streams && count == 0; ++i) count = reader.read<std::uint32_t>();
  if (reader.is_over() || count == 0) return std::nullopt;
  return count;
}

bool are_cells(std::span<const std::byte> state, const KvCells& cells, std::size_t n_tokens) {
  Reader reader(state, cells.begin);
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

// Rows of one type; false: the walk ends here, since what follows is not known.
bool check_rows(Reader& reader, std::uint64_t n_rows, bool transposed, bool& is_finite) {
  const auto type = reader.read<std::int32_t>();
  std::uint64_t n_bytes = 0;
  if (transposed) {
    n_bytes = reader.read<std::uint32_t>();
    n_bytes *= reader.read<std::uint32_t>();
  } else {
    n_bytes = reader.read<std::uint64_t>();
  }
  if (reader.is_over() || type < 0 || type >= GGML_TYPE_COUNT || n_bytes > UINT32_MAX) return false;
  const auto known = static_cast<ggml_type>(type);
  const std::span<const std::byte> rows = reader.skip(n_bytes * n_rows);
  if (reader.is_over() || ggml_type_size(known) == 0 || rows.size() % ggml_type_size(known) != 0) {
    return false;
  }
  is_finite = rows.empty() || ggml_validate_row_data(known, rows.data(), rows.size());
  return is_finite;
}

bool check_layers(Reader& reader, std::uint32_t n_layers, std::uint64_t n_rows, bool transposed,
                  bool& is_finite) {
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    if (!check_rows(reader, n_rows, transposed, is_finite)) return false;
  }
  return true;
}

}  // namespace

std::optional<KvCells> find_kv_cells(std::span<const std::byte> state, std::size_t begin,
                                     std::size_t n_tokens) {
  Reader reader(state, begin);
  const std::optional<std::uint32_t> count = read_count(reader);
  if (!count || *count < 2 || *count > n_tokens) return std::nullopt;
  for (const std::size_t n_bytes : kRecordBytes) {
    const KvCells cells{.begin = reader.at(), .n_bytes = n_bytes, .n = *count};
    if (are_cells(state, cells, n_tokens)) return cells;
  }
  return std::nullopt;
}

std::string damage_of(std::span<const std::byte> state, std::size_t n_tokens) {
  Reader reader(state, 0);
  const std::optional<std::uint32_t> count = read_count(reader);
  // Of another kind, which llama.cpp knows (recurrent, sparse), or a head that it refuses.
  if (!count || *count < 2 || *count != n_tokens) return {};
  bool is_finite = true;
  std::optional<KvCells> cells = find_kv_cells(state, 0, n_tokens);
  if (!cells) return "the slot file's cells are damaged";
  while (cells) {  // models with a sliding window have a second cache
    const std::uint32_t n = cells->n;
    reader = Reader(state, cells->begin);
    reader.skip(std::uint64_t{n} * cells->n_bytes);
    const bool transposed = reader.read<std::uint32_t>() != 0;
    const auto n_layers = reader.read<std::uint32_t>();
    bool goes_on = check_layers(reader, n_layers, n, false, is_finite);  // keys
    cells = find_kv_cells(state, reader.at(), n_tokens);                 // without values
    if (goes_on && !cells) {
      goes_on = check_layers(reader, n_layers, n, transposed, is_finite);
      cells = find_kv_cells(state, reader.at(), n_tokens);
    }
    if (!is_finite) return "the slot file's values are damaged";
    if (!goes_on) break;
  }
  return {};
}

}  // namespace unpaced
