// Length of the longest common prefix of two token sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/token.h"

namespace unpaced {

[[nodiscard]] inline std::size_t common_prefix_length(std::span<const TokenId> a,
                                                      std::span<const TokenId> b) noexcept {
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

}  // namespace unpaced
