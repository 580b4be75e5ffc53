// Min-p (Nguyen et al., arXiv:2407.01082): candidates with at least p times the best probability.
#pragma once

#include <cstdint>

#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// p <= 0: off. Unsorted candidates stay in their order, unless fewer than min_keep would be left.
// log_p: the natural logarithm of p.
UNPACED_HD inline void keep_min_p(Candidates& c, float p, float log_p,
                                  std::int32_t min_keep) noexcept {
  if (p <= 0.0F || c.size == 0) return;
  const float threshold = max_logit(c) + log_p;
  if (!c.sorted) {
    std::int32_t n_kept = 0;
    for (std::int32_t i = 0; i < c.size; ++i) n_kept += c.data[i].logit >= threshold ? 1 : 0;
    if (n_kept > 0 && n_kept >= min_keep) {
      std::int32_t n = 0;
      for (std::int32_t i = 0; i < c.size; ++i) {
        if (c.data[i].logit >= threshold) c.data[n++] = c.data[i];
      }
      c.size = n;
      return;
    }
    sort_by_logit(c);
  }
  std::int32_t n = 1;  // the best always stays
  while (n < c.size && (c.data[n].logit >= threshold || n < min_keep)) ++n;
  c.size = n;
}

}  // namespace unpaced
