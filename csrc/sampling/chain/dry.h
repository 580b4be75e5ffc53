// DRY ("don't repeat yourself", https://github.com/oobabooga/text-generation-webui/pull/5677): a
// penalty on the token that would extend a repetition of the end of the text, exponential in the
// length of the repetition.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/token.h"
#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/candidates.h"
#include "sampling/chain/dry_breakers.h"
#include "sampling/row/token_table.h"

namespace unpaced {

// The last n tokens, counted backwards: at(0) is the newest.
struct DryWindow {
  const TokenId* end;  // one past the newest
  std::int32_t size;

  UNPACED_HD TokenId at(std::int32_t i) const noexcept { return end[-1 - i]; }
};

// Sequence breakers (dry_breakers.h) as plain memory.
struct DryBreakerView {
  const DryBreakers::Entry* entries;  // ascending by head
  std::int32_t n_entries;
  const TokenId* tails;
  const std::uint64_t* is_head;  // one bit a token of the vocabulary

  UNPACED_HD bool may_break(TokenId token) const noexcept {
    return n_entries > 0 && ((is_head[token / 64] >> (token % 64)) & 1U) != 0U;
  }

  // The first entry of a head, or n_entries.
  UNPACED_HD std::int32_t find(TokenId head) const noexcept {
    std::int32_t low = 0;
    for (std::int32_t high = n_entries; low < high;) {
      const std::int32_t middle = low + (high - low) / 2;
      if (entries[middle].head < head) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  UNPACED_HD bool is_single_token_breaker(TokenId token) const noexcept {
    if (!may_break(token)) return false;
    for (std::int32_t i = find(token); i < n_entries && entries[i].head == token; ++i) {
      if (entries[i].tail_begin == entries[i].tail_end) return true;
    }
    return false;
  }
};

struct DryParams {
  float multiplier;
  float base;
  std::int32_t allowed_length;
};

namespace dry_detail {

// Length of the longest breaker tail that follows window.at(i), the head; -1 if it heads none.
UNPACED_HD inline std::int32_t longest_tail(const DryWindow& window, std::int32_t i,
                                            const DryBreakerView& breakers) noexcept {
  const TokenId head = window.at(i);
  std::int32_t longest = -1;
  if (!breakers.may_break(head)) return longest;
  for (std::int32_t e = breakers.find(head);
       e < breakers.n_entries && breakers.entries[e].head == head; ++e) {
    const TokenId* tail = breakers.tails + breakers.entries[e].tail_begin;
    const std::int32_t length = breakers.entries[e].tail_end - breakers.entries[e].tail_begin;
    if (length <= longest || length > i) continue;
    std::int32_t n_same = 0;
    while (n_same < length && tail[n_same] == window.at(i - 1 - n_same)) ++n_same;
    if (n_same == length) longest = length;
  }
  return longest;
}

// How many of the newest tokens come after the newest breaker: no repetition is counted beyond.
UNPACED_HD inline std::int32_t repeat_limit(const DryWindow& window,
                                            const DryBreakerView& breakers) noexcept {
  if (breakers.n_entries == 0) return window.size;
  for (std::int32_t i = 0; i < window.size; ++i) {
    const std::int32_t tail = longest_tail(window, i, breakers);
    if (tail >= 0) return i - tail;
  }
  return window.size;
}

// repeats[k]: how many tokens before and at window.at(k) repeat the newest ones, at most `limit`.
// The Z-algorithm (Gusfield, 1997), backwards; O(n).
UNPACED_HD inline void count_repeats(const DryWindow& window, std::int32_t limit,
                                     std::int32_t* repeats) noexcept {
  auto capped = [limit](std::int32_t n) { return n < limit ? n : limit; };
  std::int32_t left = 0;
  std::int32_t right = 0;  // [left, right] is the match that reaches furthest
  for (std::int32_t k = 1; k < window.size; ++k) {
    std::int32_t n = 0;
    if (k <= right) {
      const std::int32_t inside = right - k + 1;
      if (repeats[k - left] < inside) {
        repeats[k] = capped(repeats[k - left]);
        continue;
      }
      n = inside;
    }
    while (k + n < window.size && window.at(n) == window.at(k + n)) ++n;
    repeats[k] = capped(n);
    if (n > 0) {
      left = k;
      right = k + n - 1;
    }
  }
}

}  // namespace dry_detail

// Fills `longest` with the tokens that would extend a repetition and the repetition's length now.
// repeats: scratch of window.size. Returns false where llama.cpp leaves the candidates untouched.
UNPACED_HD inline bool find_repetitions(const DryWindow& window, const DryBreakerView& breakers,
                                        std::int32_t allowed_length, std::int32_t* repeats,
                                        TokenTable& longest) noexcept {
  longest.clear();
  if (window.size <= allowed_length) return false;
  const std::int32_t limit = dry_detail::repeat_limit(window, breakers);
  if (limit < allowed_length) return false;
  dry_detail::count_repeats(window, limit, repeats);
  for (std::int32_t k = 1; k < window.size; ++k) {
    if (repeats[k] < allowed_length) continue;
    const TokenId next = window.at(k - 1);
    TokenTable::Entry* entry = longest.find(next);
    if (entry == nullptr) {
      longest.insert(next, repeats[k]);
    } else if (entry->value < repeats[k]) {
      entry->value = repeats[k];
    }
  }
  return true;
}

// The exponent beyond which the penalty does not grow, so that it cannot overflow; 0: none.
UNPACED_HD inline std::int32_t dry_max_exponent(float base) noexcept {
  constexpr float kLogMaxFloat = 88.7228391F;
  return base > 1.000001F ? static_cast<std::int32_t>(kLogMaxFloat / log_f32(base)) : 0;
}

// What a repetition this much longer than the allowed length costs.
UNPACED_HD inline float dry_penalty(const DryParams& params, std::int32_t exponent) noexcept {
  const double power = ::pow(static_cast<double>(params.base), static_cast<double>(exponent));
  return static_cast<float>(params.multiplier * power);
}

UNPACED_HD inline float dry_penalised(float logit, TokenId token, std::int32_t repetition,
                                      const DryParams& params,
                                      const DryBreakerView& breakers) noexcept {
  if (breakers.is_single_token_breaker(token)) return logit;
  const std::int32_t max_exponent = dry_max_exponent(params.base);
  std::int32_t exponent = repetition - params.allowed_length;
  if (max_exponent > 0 && exponent > max_exponent) exponent = max_exponent;
  return legal_logit(logit - dry_penalty(params, exponent));
}

UNPACED_HD inline void penalise_repetitions(Candidates& c, const TokenTable& longest,
                                            const DryParams& params,
                                            const DryBreakerView& breakers) noexcept {
  for (std::int32_t i = 0; i < c.size; ++i) {
    const TokenTable::Entry* entry = longest.find(c.data[i].token);
    if (entry == nullptr) continue;
    c.data[i].logit = dry_penalised(c.data[i].logit, entry->token, entry->value, params, breakers);
  }
  c.sorted = false;
}

}  // namespace unpaced
