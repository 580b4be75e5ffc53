#include "sampling/chain/infill.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/softmax.h"
#include "sampling/candidates/sort.h"

namespace unpaced {
namespace {

void normalise(Candidates& c, float sum) noexcept {
  for (std::int32_t i = 0; i < c.size; ++i) c.data[i].p /= sum;
}

}  // namespace

InfillVocabulary::InfillVocabulary(std::span<const std::string_view> pieces,
                                   std::vector<std::uint8_t> ends, TokenId end)
    : ends_(std::move(ends)), end_(end), ranks_(pieces.size()), extensions_(pieces.size()) {
  const auto text = [&](TokenId token) { return pieces[static_cast<std::size_t>(token)]; };
  std::vector<TokenId> tokens(pieces.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::sort(tokens.begin(), tokens.end(),
            [&](TokenId a, TokenId b) { return text(a) != text(b) ? text(a) < text(b) : a < b; });
  auto first = tokens.begin();  // of those with the same text
  for (auto it = tokens.begin(); it != tokens.end(); ++it) {
    if (text(*it) != text(*first)) first = it;
    const auto last = std::partition_point(
        it, tokens.end(), [&](TokenId token) { return text(token).starts_with(text(*it)); });
    const auto i = static_cast<std::size_t>(*it);
    ranks_[i] = static_cast<std::int32_t>(it - tokens.begin());
    if (text(*it).empty()) continue;
    extensions_[i] = {static_cast<std::int32_t>(first - tokens.begin()),
                      static_cast<std::int32_t>(last - tokens.begin())};
  }
}

Infill::Infill(std::shared_ptr<const InfillVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      by_rank_(static_cast<std::size_t>(vocabulary_->size())),
      found_(static_cast<std::size_t>(vocabulary_->size())) {}

void Infill::apply(Candidates& c) noexcept {
  sort_by_logit(c);
  softmax(c);
  float p_text = 0.0F;
  float p_end = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    (vocabulary_->is_end(c.data[i].token) ? p_end : p_text) += c.data[i].p;
  }
  float sum = 0.0F;
  if (3.0F * p_end * static_cast<float>(c.size) > p_text) {
    keep_likely(c, kInfinity, sum);
    return normalise(c, sum);
  }
  merge_extensions(c);
  const std::int32_t n_text = keep_likely(c, 0.2F, sum);
  if (n_text == 0) {
    c.data[0].token = vocabulary_->end();
    c.data[0].logit = 1.0F;
    c.size = 1;
    return;
  }
  normalise(c, sum);
  keep_likely(c, static_cast<float>(1.0 / (n_text + 1)), sum);
  normalise(c, sum);
}

void Infill::merge_extensions(Candidates& c) noexcept {
  const auto by_rank = std::span(by_rank_).first(static_cast<std::size_t>(c.size));
  std::iota(by_rank.begin(), by_rank.end(), 0);
  std::sort(by_rank.begin(), by_rank.end(), [&](std::int32_t a, std::int32_t b) {
    return vocabulary_->rank(c.data[a].token) < vocabulary_->rank(c.data[b].token);
  });
  for (std::int32_t i = 0; i < c.size; ++i) {
    Candidate& shorter = c.data[i];
    if (shorter.logit == -kInfinity) continue;
    for (const std::int32_t j : extensions_of(c, i)) {
      Candidate& longer = c.data[j];
      const bool longer_wins = longer.p > shorter.p;
      Candidate& kept = longer_wins ? longer : shorter;
      Candidate& dropped = longer_wins ? shorter : longer;
      kept.p += dropped.p;
      dropped.logit = -kInfinity;
      dropped.p = 0.0F;
      if (longer_wins) break;
    }
  }
}

std::span<const std::int32_t> Infill::extensions_of(const Candidates& c, std::int32_t i) noexcept {
  const auto [first, last] = vocabulary_->extensions(c.data[i].token);
  const auto by_rank = std::span(by_rank_).first(static_cast<std::size_t>(c.size));
  std::size_t n = 0;
  for (auto it = std::partition_point(by_rank.begin(), by_rank.end(),
                                      [&, begin = first](std::int32_t j) {
                                        return vocabulary_->rank(c.data[j].token) < begin;
                                      });
       it != by_rank.end() && vocabulary_->rank(c.data[*it].token) < last; ++it) {
    if (*it != i && c.data[*it].logit > -kInfinity) found_[n++] = *it;
  }
  std::sort(found_.begin(), found_.begin() + static_cast<std::ptrdiff_t>(n));
  return std::span(found_).first(n);
}

std::int32_t Infill::keep_likely(Candidates& c, float threshold, float& sum) const noexcept {
  std::int32_t n_kept = 0;
  std::int32_t n_text = 0;
  sum = 0.0F;
  for (std::int32_t i = 0; i < c.size; ++i) {
    const bool is_end = vocabulary_->is_end(c.data[i].token);
    if (c.data[i].p < threshold && !is_end) continue;
    n_text += is_end ? 0 : 1;
    sum += c.data[i].p;
    c.data[n_kept++] = c.data[i];
  }
  c.size = n_kept;
  return n_text;
}

}  // namespace unpaced
