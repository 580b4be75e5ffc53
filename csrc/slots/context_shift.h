// What a full slot drops to make room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "request/request.h"

namespace unpaced {

struct ContextShift {
  std::int32_t n_keep;     // tokens of the beginning that stay
  std::int32_t n_discard;  // tokens after them that go; at least 1
};

// llama-server's arithmetic (llama.cpp 0c1e57098 tools/server/server-context.cpp:2913-2926).
// `n_cells` is at least n_ctx - 1.
[[nodiscard]] inline ContextShift plan_context_shift(const RequestSpec& spec, std::int32_t n_cells,
                                                     std::int32_t n_ctx, bool adds_bos) noexcept {
  std::int32_t n_keep =
      spec.n_keep < 0 ? static_cast<std::int32_t>(spec.prompt.size()) : spec.n_keep;
  n_keep = std::min(n_ctx - 4, n_keep + (adds_bos && n_keep < n_ctx ? 1 : 0));
  const std::int32_t n_left = n_cells - n_keep;
  const std::int32_t n_wanted = spec.n_discard != 0 ? spec.n_discard : n_left / 2;
  return {.n_keep = n_keep, .n_discard = std::clamp(n_wanted, 0, std::max(0, n_left - 1))};
}

}  // namespace unpaced
