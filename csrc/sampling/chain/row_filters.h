// The links of the chain that work on a whole row of logits, before anything has cut it. Each gives
// exactly what its namesake for candidates gives when they are all tokens in ascending order.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/row/logit_row.h"

namespace unpaced {

void ban_below_n_sigma(LogitRow& row, float n) noexcept;
void apply_temperature(LogitRow& row, float temperature) noexcept;
void keep_top_p(LogitRow& row, float p, std::int32_t min_keep, Candidates& out) noexcept;
void keep_min_p(LogitRow& row, float p, float log_p, std::int32_t min_keep,
                Candidates& out) noexcept;

struct RowDraw {
  TokenId token;
  float best;  // probabilities are exp(logit - best) / sum
  double sum;
};

// Draws from the softmax of the row. page_sums: scratch of row.n_pages().
RowDraw draw_softmax(const LogitRow& row, std::span<double> page_sums, Mt19937& rng) noexcept;

}  // namespace unpaced
