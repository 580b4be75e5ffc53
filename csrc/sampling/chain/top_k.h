// Top-k: the k best candidates, in descending order.
#pragma once

#include <cstdint>

#include "sampling/candidates/candidates.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// k <= 0: off. Candidates that are sorted already are only cut.
UNPACED_HD inline void keep_top_k(Candidates& c, std::int32_t k) noexcept {
  if (k <= 0) return;
  sort_by_logit(c);
  if (k < c.size) c.size = k;
}

}  // namespace unpaced
