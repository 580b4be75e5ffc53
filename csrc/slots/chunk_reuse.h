// Parts of a prompt that a slot holds at another place: what follows a deleted passage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/token.h"

namespace unpaced {

// Cells [from, from + n) hold the prompt's tokens [to, to + n); to <= from.
struct ReusableChunk {
  std::int32_t from;
  std::int32_t to;
  std::int32_t n;
};

// Calls `move` for each chunk of at least `n_min` tokens, in order, and keeps `cells` in step.
// `n_common`: length of the common prefix. `n_fixed`: the first cells, which must stay. The search
// is llama-server's (llama.cpp 0c1e57098 tools/server/server-context.cpp:3219-3270): it skips
// cells, never prompt tokens.
template <class Move>
void for_each_reusable_chunk(std::span<TokenId> cells, std::span<const TokenId> prompt,
                             std::int32_t n_common, std::int32_t n_fixed, std::int32_t n_min,
                             Move move) {
  const auto n_cells = static_cast<std::int32_t>(cells.size());
  const auto n_prompt = static_cast<std::int32_t>(prompt.size());
  const auto cell = [&](std::int32_t i) -> TokenId& { return cells[static_cast<std::size_t>(i)]; };
  std::int32_t from = std::max(n_common, n_fixed);
  std::int32_t to = n_common;
  while (from < n_cells && to < n_prompt) {
    std::int32_t n = 0;
    while (from + n < n_cells && to + n < n_prompt &&
           cell(from + n) == prompt[static_cast<std::size_t>(to + n)]) {
      ++n;
    }
    if (n < n_min) {
      ++from;
      continue;
    }
    move(ReusableChunk{.from = from, .to = to, .n = n});
    for (std::int32_t i = 0; i < n; ++i) cell(to + i) = cell(from + i);
    from += n;
    to += n;
  }
}

}  // namespace unpaced
