// Repetition, frequency and presence penalties over a window of the last tokens.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"
#include "sampling/row/token_table.h"

namespace unpaced {

struct Penalties {
  float repeat;     // 1: off; divides positive logits, multiplies the others
  float frequency;  // subtracted once for each occurrence
  float presence;   // subtracted once
};

UNPACED_HD inline float penalised(float logit, std::int32_t count,
                                  const Penalties& penalties) noexcept {
  const float repeated = logit <= 0.0F ? logit * penalties.repeat : logit / penalties.repeat;
  const float subtracted = static_cast<float>(count) * penalties.frequency + penalties.presence;
  return legal_logit(repeated - subtracted);
}

// Counts the occurrences of tokens in a window.
UNPACED_HD inline void count_token(TokenTable& counts, TokenId token) noexcept {
  if (TokenTable::Entry* entry = counts.find(token)) {
    ++entry->value;
  } else {
    counts.insert(token, 1);
  }
}

UNPACED_HD inline void uncount_token(TokenTable& counts, TokenId token) noexcept {
  TokenTable::Entry* entry = counts.find(token);
  if (entry != nullptr && --entry->value == 0) counts.erase(entry);
}

UNPACED_HD inline void penalise(Candidates& c, const TokenTable& counts,
                                const Penalties& penalties) noexcept {
  for (std::int32_t i = 0; i < c.size; ++i) {
    const TokenTable::Entry* entry = counts.find(c.data[i].token);
    if (entry != nullptr) c.data[i].logit = penalised(c.data[i].logit, entry->value, penalties);
  }
  c.sorted = false;
}

}  // namespace unpaced
