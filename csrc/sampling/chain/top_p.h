// Top-p (nucleus, Holtzman et al., arXiv:1904.09751): the shortest prefix of the descending order
// whose probabilities sum to at least p.
#pragma once

#include <cstdint>

#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// p >= 1: off. The probabilities are taken in the order in which the candidates come, before
// sorting.
UNPACED_HD inline void keep_top_p(Candidates& c, float p, std::int32_t min_keep) noexcept {
  if (p >= 1.0F) return;
  softmax(c);
  sort_by_logit(c);
  float sum = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    sum += c.data[i].p;
    if (sum >= p && i + 1 >= min_keep) {
      c.size = i + 1;
      return;
    }
  }
}

}  // namespace unpaced
