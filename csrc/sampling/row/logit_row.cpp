#include "sampling/row/logit_row.h"

#include <algorithm>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/sort.h"

namespace unpaced {
namespace {

constexpr std::int32_t kMaxRanked = 256;  // candidates to sort by rank, which is quadratic

// Sorts at most kMaxRanked candidates by counting for each how many come before it.
void sort_by_rank(const VocabularyKernels& kernels, Candidates& c) noexcept {
  std::int64_t keys[kMaxRanked];
  std::int64_t ranks[kMaxRanked];
  Candidate unsorted[kMaxRanked];
  const std::int32_t n_keys = (c.size + 7) / 8 * 8;
  for (std::int32_t i = 0; i < c.size; ++i) {
    unsorted[i] = c.data[i];
    keys[i] = static_cast<std::int64_t>(descending_key(c.data[i].logit)) << 31 | c.data[i].token;
  }
  for (std::int32_t i = c.size; i < n_keys; ++i) keys[i] = INT64_MAX;
  kernels.rank(keys, n_keys, ranks);
  for (std::int32_t i = 0; i < c.size; ++i) c.data[ranks[i]] = unsorted[i];
  c.sorted = true;
  c.by_token = false;
}

}  // namespace

LogitRow::LogitRow(std::int32_t n_vocab)
    : kernels_(vocabulary_kernels()),
      n_vocab_(n_vocab),
      n_pages_((n_vocab + kPageFloats - 1) / kPageFloats),
      own_(static_cast<std::size_t>(n_pages_) * kPageFloats, -kInfinity),
      copied_(n_pages_, 0),
      copied_pages_(n_pages_, 0),
      found_pages_(n_pages_, 0),
      maxima_(static_cast<std::size_t>(n_pages_) * kLanes) {}

bool LogitRow::bind(const float* logits) noexcept {
  forget_copies();
  raw_ = logits;
  const std::int32_t n_whole = n_vocab_ / kPageFloats;
  bool legal = kernels_.scan(raw_, n_whole, maxima_.data());
  if (n_whole < n_pages_) {  // the padding of own_ is never written
    copy_page(n_whole);
    const std::int32_t lanes = n_whole * kLanes;
    legal = kernels_.scan(own_page(n_whole), 1, maxima_.data() + lanes) && legal;
  }
  max_ = kernels_.max(maxima_.data(), n_pages_ * kLanes);
  return legal;
}

float& LogitRow::at(TokenId token) noexcept {
  copy_page(token / kPageFloats);
  return own_[token];
}

void LogitRow::refresh() noexcept {
  for (std::int32_t i = 0; i < n_copied_; ++i) {
    const std::int32_t page = copied_pages_[i];
    kernels_.scan(own_page(page), 1, maxima_.data() + page * kLanes);
  }
  max_ = kernels_.max(maxima_.data(), n_pages_ * kLanes);
}

void LogitRow::apply_mask(std::span<const std::uint32_t> words) noexcept {
  float* logits = flatten();
  constexpr std::int32_t kBits = 32;
  for (std::int32_t begin = 0; begin < n_vocab_; begin += kBits) {
    const std::uint32_t word = words[static_cast<std::size_t>(begin / kBits)];
    if (word == UINT32_MAX) continue;
    const std::int32_t n = std::min(kBits, n_vocab_ - begin);
    for (std::int32_t i = 0; i < n; ++i) {
      if ((word >> i & 1U) == 0) logits[begin + i] = -kInfinity;
    }
  }
  rescan();
}

float* LogitRow::flatten() noexcept {
  for (std::int32_t i = 0; i < n_pages_; ++i) copy_page(i);
  return own_.data();
}

void LogitRow::rescan() noexcept {
  kernels_.scan(own_.data(), n_pages_, maxima_.data());
  max_ = kernels_.max(maxima_.data(), n_pages_ * kLanes);
}

void LogitRow::copy_page(std::int32_t i) noexcept {
  if (copied_[i] != 0) return;
  copied_[i] = 1;
  copied_pages_[n_copied_++] = i;
  const std::int32_t begin = i * kPageFloats;
  const std::int32_t n = std::min(kPageFloats, n_vocab_ - begin);
  std::copy_n(raw_ + begin, n, own_.data() + begin);
}

void LogitRow::forget_copies() noexcept {
  for (std::int32_t i = 0; i < n_copied_; ++i) copied_[copied_pages_[i]] = 0;
  n_copied_ = 0;
}

std::int32_t LogitRow::count_reaching(float threshold, bool by_lane) const noexcept {
  if (by_lane) return kernels_.count(maxima_.data(), n_pages_ * kLanes, threshold);
  std::int32_t n = 0;
  for (std::int32_t i = 0; i < n_pages_; ++i) n += kernels_.count(page(i), kPageFloats, threshold);
  return n;
}

// A threshold that at least k logits reach, or all that are not banned, and, if ties permit, not
// many more. Where lanes are plenty their maxima stand for the logits: k lanes that reach a
// threshold hold k logits that do.
float LogitRow::threshold_of_top(std::int32_t k) const noexcept {
  constexpr float kLowest = -kMaxFloat;
  constexpr std::int32_t kMaxHalvings = 24;
  if (k >= n_vocab_) return kLowest;
  const bool by_lane = n_pages_ * kLanes >= 4 * k;
  const std::int32_t enough = k + k / 4 + 4;
  float high = max_;
  float low = max_;
  std::int32_t n = 0;
  for (float step = 1.0F; n < k; step *= 2.0F) {
    constexpr float kUnusual = 64.0F;  // below the best: perhaps there are no k logits
    if (step == kUnusual && count_reaching(kLowest, by_lane) < k) return kLowest;
    high = low;
    low = std::max(max_ - step, kLowest);
    n = count_reaching(low, by_lane);
  }
  for (std::int32_t i = 0; i < kMaxHalvings && n > enough; ++i) {
    const float middle = low + (high - low) / 2.0F;
    const std::int32_t n_middle = count_reaching(middle, by_lane);
    if (n_middle >= k) {
      low = middle;
      n = n_middle;
    } else {
      high = middle;
    }
  }
  return low;
}

void LogitRow::select_reaching(float threshold, Candidates& out) noexcept {
  std::uint8_t positions[kPageFloats];
  out.size = 0;
  out.sorted = false;
  out.by_token = true;
  const std::int32_t n_found =
      kernels_.collect_pages(maxima_.data(), n_pages_, threshold, found_pages_.data());
  for (std::int32_t f = 0; f < n_found; ++f) {
    const std::int32_t i = found_pages_[f];
    const float* logits = page(i);
    const std::int32_t begin = i * kPageFloats;
    const std::int32_t n = kernels_.collect(logits, threshold, positions);
    for (std::int32_t j = 0; j < n; ++j) {
      out.data[out.size++] = {begin + positions[j], logits[positions[j]], 0.0F};
    }
  }
}

void LogitRow::append_banned(std::int32_t n, Candidates& out) const noexcept {
  for (TokenId token = 0; n > 0 && token < n_vocab_; ++token) {
    if (page(token / kPageFloats)[token % kPageFloats] != -kInfinity) continue;
    out.data[out.size++] = {token, -kInfinity, 0.0F};
    --n;
  }
}

void LogitRow::select_top(std::int32_t k, Candidates& out) noexcept {
  select_reaching(threshold_of_top(k), out);
  if (out.size <= kMaxRanked) {
    sort_by_rank(kernels_, out);
  } else {
    sort_by_logit(out);
  }
  if (out.size < k) append_banned(k - out.size, out);
  out.size = std::min(out.size, k);
}

}  // namespace unpaced
