#include "slots/state_damage.h"

#include <ggml.h>

#include <optional>

#include "slots/byte_reader.h"
#include "slots/kv_cells.h"

namespace unpaced {
namespace {

// Rows of one type; false: the walk ends here, since what follows is not known.
bool check_rows(ByteReader& reader, std::uint64_t n_rows, bool transposed, bool& is_finite) {
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

bool check_layers(ByteReader& reader, std::uint32_t n_layers, std::uint64_t n_rows, bool transposed,
                  bool& is_finite) {
  for (std::uint32_t layer = 0; layer < n_layers; ++layer) {
    if (!check_rows(reader, n_rows, transposed, is_finite)) return false;
  }
  return true;
}

}  // namespace

std::string damage_of(std::span<const std::byte> state, std::size_t n_tokens) {
  const std::optional<std::uint32_t> count = n_kv_cells(state, 0);
  // Of another kind, which llama.cpp knows (recurrent, sparse), or a head that it refuses.
  if (!count || *count < 2 || *count != n_tokens) return {};
  bool is_finite = true;
  std::optional<KvCells> cells = find_kv_cells(state, 0, n_tokens);
  if (!cells) return "the slot file's cells are damaged";
  while (cells) {  // models with a sliding window have a second cache
    const std::uint32_t n = cells->n;
    ByteReader reader(state, cells->begin);
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
