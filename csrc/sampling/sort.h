// Puts candidates in descending order of their logits, equal logits in ascending order of tokens.
#pragma once

#include <cstdint>

#include "candidates.h"
#include "float_math.h"
#include "introsort.h"

namespace unpaced {

// Ascending keys mean descending logits. -0 and +0 are equal logits, so they share a key.
UNPACED_HD inline std::uint32_t descending_key(float logit) noexcept {
  const std::uint32_t bits = bits_of(logit + 0.0F);
  return (bits & 0x80000000U) != 0U ? bits : bits ^ 0x7fffffffU;
}

struct BetterCandidate {
  UNPACED_HD bool operator()(const Candidate& a, const Candidate& b) const noexcept {
    if (a.logit != b.logit) return a.logit > b.logit;
    return a.token < b.token;
  }
};

namespace sort_detail {

inline constexpr std::int32_t kRadixMin = 2048;  // below it, comparing is faster than counting
inline constexpr std::int32_t kDigitBits = 11;
inline constexpr std::uint32_t kDigits = 1U << kDigitBits;

// One stable counting pass by a digit of the key (or of the token) from `from` to `to`.
template <bool kByToken>
UNPACED_HD void radix_pass(const Candidate* from, Candidate* to, std::int32_t n,
                           std::int32_t shift) noexcept {
  std::int32_t begin[kDigits] = {};
  auto digit = [shift](const Candidate& c) {
    const std::uint32_t key =
        kByToken ? static_cast<std::uint32_t>(c.token) : descending_key(c.logit);
    return (key >> shift) & (kDigits - 1U);
  };
  for (std::int32_t i = 0; i < n; ++i) ++begin[digit(from[i])];
  std::int32_t total = 0;
  for (std::uint32_t d = 0; d < kDigits; ++d) {
    const std::int32_t count = begin[d];
    begin[d] = total;
    total += count;
  }
  for (std::int32_t i = 0; i < n; ++i) to[begin[digit(from[i])]++] = from[i];
}

}  // namespace sort_detail

UNPACED_HD inline void sort_by_logit(Candidates& c) noexcept {
  namespace detail = sort_detail;
  if (c.sorted) return;
#if defined(__CUDA_ARCH__)
  // The counting passes would reserve 8 KiB of local memory for every thread of the device.
  introsort(c.data, c.size, BetterCandidate{});
#else
  if (c.size < detail::kRadixMin) {
    introsort(c.data, c.size, BetterCandidate{});
  } else {
    if (!c.by_token) {  // the passes are stable, so order by token first
      detail::radix_pass<true>(c.data, c.scratch, c.size, 0);
      detail::radix_pass<true>(c.scratch, c.data, c.size, detail::kDigitBits);
    }
    detail::radix_pass<false>(c.data, c.scratch, c.size, 0);
    detail::radix_pass<false>(c.scratch, c.data, c.size, detail::kDigitBits);
    detail::radix_pass<false>(c.data, c.scratch, c.size, 2 * detail::kDigitBits);
    Candidate* sorted = c.scratch;
    c.scratch = c.data;
    c.data = sorted;
  }
#endif
  c.sorted = true;
  c.by_token = false;
}

}  // namespace unpaced
