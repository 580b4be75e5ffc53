#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/arithmetic/float_math.h"

namespace unpaced {
namespace {

double sum_of_exp(const LogitRow& row) noexcept {
  constexpr std::int32_t kSums = 8;  // independent, so that they can be added at the same time
  double sums[kSums] = {};
  float exps[kPageFloats];
  for (std::int32_t page = 0; page < row.n_pages(); ++page) {
    row.kernels().exp_shifted(row.page(page), kPageFloats, row.max(), exps);
    for (std::int32_t i = 0; i < kPageFloats; i += kSums) {
      for (std::int32_t j = 0; j < kSums; ++j) sums[j] += exps[i + j];
    }
  }
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

TopLogprobs::TopLogprobs(std::int32_t n_vocab)
    : row_(n_vocab), candidates_(n_vocab), scratch_(n_vocab), best_(n_vocab) {}

std::span<const TokenLogprob> TopLogprobs::compute(const float* logits, std::int32_t n) noexcept {
  logits_ = logits;
  if (!row_.bind(logits) || !(row_.max() > -kInfinity)) {
    log_sum_ = std::numeric_limits<double>::quiet_NaN();
    return {};
  }
  log_sum_ = row_.max() + std::log(sum_of_exp(row_));
  if (n <= 0) return {};
  Candidates top{candidates_.data(), scratch_.data(), 0, false, false};
  row_.select_top(std::min(n, row_.n_vocab()), top);
  for (std::int32_t i = 0; i < top.size; ++i) {
    const TokenId token = top.data[i].token;
    best_[i] = {token, logprob(token)};
  }
  return {best_.data(), static_cast<std::size_t>(top.size)};
}

float TopLogprobs::logprob(TokenId token) const noexcept {
  return static_cast<float>(logits_[token] - log_sum_);
}

}  // namespace unpaced
