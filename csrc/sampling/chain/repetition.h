// What the text so far does to the next token: repetition penalties and DRY.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/candidates/candidates.h"
#include "sampling/chain/dry.h"
#include "sampling/chain/dry_breakers.h"
#include "sampling/chain/penalties.h"
#include "sampling/chain/sampling_params.h"
#include "sampling/row/logit_row.h"
#include "sampling/row/token_history.h"
#include "sampling/row/token_table.h"

namespace unpaced {

// State of one sequence. All memory is taken in the constructor. One thread.
class Repetition {
 public:
  // n_ctx: the longest text. Windows that are asked to be longer end there.
  Repetition(std::int32_t n_vocab, std::int32_t n_ctx);
  Repetition(Repetition&&) noexcept = default;  // the tables point into the vectors' memory

  // Starts a text. `breakers` may be null and must stay until the next reset.
  void reset(const SamplingParams& params, const DryBreakers* breakers,
             std::span<const TokenId> prompt) noexcept;

  // Appends a token in [0, n_vocab).
  void accept(TokenId token) noexcept;

  bool has_penalties() const noexcept { return penalty_last_n_ > 0; }
  bool has_dry() const noexcept { return dry_last_n_ > 0; }

  const Penalties& penalties() const noexcept { return penalties_; }
  // Tokens that the penalties look back; 0: off.
  std::int32_t penalty_last_n() const noexcept { return penalty_last_n_; }
  // How often each token occurs in what they see now.
  const TokenTable& counts() const noexcept { return counts_; }
  const DryParams& dry() const noexcept { return dry_; }
  // Tokens that DRY looks back; 0: off.
  std::int32_t dry_last_n() const noexcept { return dry_last_n_; }
  const DryBreakerView& breakers() const noexcept { return breakers_; }
  // The newest tokens, oldest first, as far as penalties or DRY look back.
  std::span<const TokenId> window() const noexcept {
    return history_.last(std::max(penalty_last_n_, dry_last_n_));
  }

  void penalise(LogitRow& row) const noexcept;
  void penalise(Candidates& candidates) const noexcept;
  void apply_dry(LogitRow& row) noexcept;
  void apply_dry(Candidates& candidates) noexcept;

 private:
  void set_breakers(const DryBreakers* breakers) noexcept;
  bool find_repetitions() noexcept;

  std::int32_t n_vocab_;
  TokenHistory history_;

  std::int32_t penalty_last_n_ = 0;  // 0: off
  Penalties penalties_{};
  std::vector<std::int32_t> count_index_;
  std::vector<TokenTable::Entry> count_entries_;
  TokenTable counts_;  // occurrences in the penalty window

  std::int32_t dry_last_n_ = 0;  // 0: off
  DryParams dry_{};
  DryBreakerView breakers_{};
  std::vector<std::uint64_t> breaker_heads_;
  std::vector<std::int32_t> repeats_;
  std::vector<std::int32_t> longest_index_;
  std::vector<TokenTable::Entry> longest_entries_;
  TokenTable longest_;  // repetition that each token would extend
};

}  // namespace unpaced
