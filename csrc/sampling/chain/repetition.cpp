#include "sampling/chain/repetition.h"

#include <algorithm>

namespace unpaced {
namespace {

bool penalties_are_off(const SamplingParams& params) noexcept {
  return params.repeat_penalty == 1.0F && params.frequency_penalty == 0.0F &&
         params.presence_penalty == 0.0F;
}

bool dry_is_off(const SamplingParams& params) noexcept {
  return params.dry_multiplier == 0.0F || !(params.dry_base >= 1.0F);
}

}  // namespace

// One token more than the context: the last one drawn is never decoded.
Repetition::Repetition(std::int32_t n_vocab, std::int32_t n_ctx)
    : n_vocab_(n_vocab),
      history_(n_ctx + 1),
      count_index_(n_vocab),
      count_entries_(std::min(n_vocab, n_ctx + 1) + 1),
      counts_{count_index_.data(), count_entries_.data(), 0},
      breaker_heads_(n_vocab / 64 + 1),
      repeats_(n_ctx + 1),
      longest_index_(n_vocab),
      longest_entries_(std::min(n_vocab, n_ctx + 1)),
      longest_{longest_index_.data(), longest_entries_.data(), 0} {}

void Repetition::reset(const SamplingParams& params, const DryBreakers* breakers,
                       std::span<const TokenId> prompt) noexcept {
  const std::int32_t longest = history_.capacity();
  penalties_ = {params.repeat_penalty, params.frequency_penalty, params.presence_penalty};
  penalty_last_n_ = penalties_are_off(params) ? 0 : std::clamp(params.repeat_last_n, 0, longest);
  dry_ = {params.dry_multiplier, params.dry_base, std::max(params.dry_allowed_length, 0)};
  const std::int32_t dry_last_n =
      params.dry_penalty_last_n < 0 ? longest : params.dry_penalty_last_n;
  dry_last_n_ = dry_is_off(params) ? 0 : std::min(dry_last_n, longest);
  set_breakers(has_dry() ? breakers : nullptr);

  history_.clear();
  counts_.clear();
  const auto window = static_cast<std::size_t>(std::max(penalty_last_n_, dry_last_n_));
  for (const TokenId token : prompt.last(std::min(prompt.size(), window))) accept(token);
}

void Repetition::set_breakers(const DryBreakers* breakers) noexcept {
  breakers_ = {};
  if (breakers == nullptr) return;
  breakers_ = {breakers->entries.data(), static_cast<std::int32_t>(breakers->entries.size()),
               breakers->tails.data(), breaker_heads_.data()};
  std::fill(breaker_heads_.begin(), breaker_heads_.end(), 0);
  for (const DryBreakers::Entry& entry : breakers->entries) {
    if (entry.head >= n_vocab_) break;  // the model may have fewer logits than tokens
    breaker_heads_[entry.head / 64] |= std::uint64_t{1} << (entry.head % 64);
  }
}

void Repetition::accept(TokenId token) noexcept {
  if (!has_penalties() && !has_dry()) return;
  if (has_penalties()) {
    const auto window = history_.last(penalty_last_n_);
    count_token(counts_, token);
    if (window.size() == static_cast<std::size_t>(penalty_last_n_)) {
      uncount_token(counts_, window.front());
    }
  }
  history_.push(token);
}

void Repetition::penalise(LogitRow& row) const noexcept {
  for (std::int32_t i = 0; i < counts_.size; ++i) {
    float& logit = row.at(counts_.entries[i].token);
    logit = penalised(logit, counts_.entries[i].value, penalties_);
  }
  if (counts_.size > 0) row.refresh();
}

void Repetition::penalise(Candidates& candidates) const noexcept {
  unpaced::penalise(candidates, counts_, penalties_);
}

bool Repetition::find_repetitions() noexcept {
  const auto window = history_.last(dry_last_n_);
  const DryWindow backwards{window.data() + window.size(),
                            static_cast<std::int32_t>(window.size())};
  return unpaced::find_repetitions(backwards, breakers_, dry_.allowed_length, repeats_.data(),
                                   longest_);
}

void Repetition::apply_dry(LogitRow& row) noexcept {
  if (!find_repetitions()) return;
  for (std::int32_t i = 0; i < longest_.size; ++i) {
    const TokenTable::Entry& entry = longest_.entries[i];
    float& logit = row.at(entry.token);
    logit = dry_penalised(logit, entry.token, entry.value, dry_, breakers_);
  }
  if (longest_.size > 0) row.refresh();
}

void Repetition::apply_dry(Candidates& candidates) noexcept {
  if (find_repetitions()) penalise_repetitions(candidates, longest_, dry_, breakers_);
}

}  // namespace unpaced
