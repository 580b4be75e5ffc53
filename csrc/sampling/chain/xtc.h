// XTC (exclude top choices, https://github.com/oobabooga/text-generation-webui/pull/6335): with a
// chance, removes every candidate that reaches the threshold, except the least likely of them.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {

// Whether this token's choices are cut: one number of the stream decides, if there is a choice at
// all.
UNPACED_HD inline bool xtc_strikes(std::int32_t n_candidates, float probability,
                                   Mt19937& rng) noexcept {
  return n_candidates >= 2 && rng.next_f32() <= probability;
}

// What happens to the candidates when it strikes: sorts them and cuts the front.
UNPACED_HD inline void exclude_top_choices(Candidates& c, float threshold,
                                           std::int32_t min_keep) noexcept {
  sort_by_logit(c);
  softmax(c);
  std::int32_t last = 0;
  for (std::int32_t i = 0; i < c.size && c.data[i].p >= threshold; ++i) last = i;
  if (last == 0 || c.size - last < min_keep) return;
  c.data += last;
  c.size -= last;
}

}  // namespace unpaced
