#include "sampling/chain/row_filters.h"

#include <algorithm>

#include "sampling/arithmetic/float_math.h"
#include "sampling/chain/min_p.h"
#include "sampling/chain/temperature.h"
#include "sampling/chain/top_n_sigma.h"
#include "sampling/row/vocabulary_kernels.h"

namespace unpaced {
namespace {

// Sums exp(logit - best) over the row in float32, in ascending order of tokens.
float ascending_sum_of_exp(const LogitRow& row) noexcept {
  float exps[kPageFloats];
  float sum = 0.0F;
  for (std::int32_t page = 0; page < row.n_pages(); ++page) {
    row.kernels().exp_shifted(row.page(page), kPageFloats, row.max(), exps);
    for (const float e : exps) sum += e;
  }
  return sum;
}

// Cuts sorted candidates, which begin the row's descending order, where their probabilities reach
// p.
bool cut_at_p(Candidates& c, float best, float sum, float p, std::int32_t min_keep) noexcept {
  float cumulative = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    cumulative += exp_f32(c.data[i].logit - best) / sum;
    if (cumulative >= p && i + 1 >= min_keep) {
      c.size = i + 1;
      return true;
    }
  }
  return false;
}

}  // namespace

void ban_below_n_sigma(LogitRow& row, float n) noexcept {
  if (n <= 0.0F || row.n_vocab() <= 1) return;
  float* logits = row.flatten();
  const float threshold =
      top_n_sigma_threshold([logits](std::int32_t i) { return logits[i]; }, row.n_vocab(), n);
  for (std::int32_t i = 0; i < row.n_vocab(); ++i) {
    logits[i] = logits[i] < threshold ? -kInfinity : logits[i];
  }
  row.rescan();
}

void apply_temperature(LogitRow& row, float temperature) noexcept {
  const float best = row.max();
  const TemperatureScale scale = temperature_scale(temperature, best);
  float* logits = row.flatten();
  float* end = logits + row.n_vocab();
  if (scale.greedy) {
    float* first_best = std::find(logits, end, best);
    std::fill(logits, end, -kInfinity);
    *first_best = best;
  } else {
    for (float* logit = logits; logit != end; ++logit) *logit /= scale.divisor;
  }
  row.rescan();
}

void keep_top_p(LogitRow& row, float p, std::int32_t min_keep, Candidates& out) noexcept {
  constexpr std::int32_t kFirstTry = 256;
  constexpr std::int32_t kGrowth = 8;
  const float sum = ascending_sum_of_exp(row);
  for (std::int32_t k = kFirstTry; k < row.n_vocab(); k *= kGrowth) {
    row.select_top(k, out);
    if (cut_at_p(out, row.max(), sum, p, min_keep)) return;
  }
  row.select_top(row.n_vocab(), out);
  cut_at_p(out, row.max(), sum, p, min_keep);
}

void keep_min_p(LogitRow& row, float p, float log_p, std::int32_t min_keep,
                Candidates& out) noexcept {
  row.select_reaching(row.max() + log_p, out);
  if (out.size > 0 && out.size >= min_keep) return;
  row.select_top(row.n_vocab(), out);
  keep_min_p(out, p, log_p, min_keep);
}

RowDraw draw_softmax(const LogitRow& row, std::span<double> page_sums, Mt19937& rng) noexcept {
  const float best = row.max();
  float exps[kPageFloats];
  double sum = 0.0;
  for (std::int32_t page = 0; page < row.n_pages(); ++page) {
    page_sums[page] = sum;  // before the page
    row.kernels().exp_shifted(row.page(page), kPageFloats, best, exps);
    for (const float e : exps) sum += e;
  }
  const double target = sum * rng.next_f64();
  const auto after = std::lower_bound(page_sums.begin() + 1, page_sums.end(), target);
  std::int32_t page = static_cast<std::int32_t>(after - page_sums.begin()) - 1;
  double running = page_sums[page];
  for (; page < row.n_pages(); ++page) {
    row.kernels().exp_shifted(row.page(page), kPageFloats, best, exps);
    for (std::int32_t i = 0; i < kPageFloats; ++i) {
      running += exps[i];
      if (running >= target && exps[i] > 0.0F) return {page * kPageFloats + i, best, sum};
    }
  }
  return {-1, best, sum};  // not reached: the best token's exp is 1
}

}  // namespace unpaced
