// Puts candidates in descending order of their logits, equal logits in ascending order of tokens.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/introsort.h"
#include "sampling/candidates/candidates.h"

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

inline constexpr std::int32_t kRadixMin = 128;  // below it, comparing is faster than counting
inline constexpr std::int32_t kWideMin = 8192;  // from here on, fewer passes over more buckets

struct LogitKey {
  UNPACED_HD std::uint32_t operator()(const Candidate& c) const noexcept {
    return descending_key(c.logit);
  }
};

struct TokenKey {
  UNPACED_HD std::uint32_t operator()(const Candidate& c) const noexcept {
    return static_cast<std::uint32_t>(c.token);
  }
};

// Stable, ascending by key: one counting pass a digit, between data and scratch in turns.
template <std::int32_t kDigitBits, class Key>
UNPACED_HD void radix_sort(Candidates& c, Key key) noexcept {
  constexpr std::uint32_t kBuckets = 1U << kDigitBits;
  for (std::int32_t shift = 0; shift < 32; shift += kDigitBits) {
    std::int32_t begin[kBuckets] = {};
    auto digit = [shift, key](const Candidate& x) { return (key(x) >> shift) & (kBuckets - 1U); };
    for (std::int32_t i = 0; i < c.size; ++i) ++begin[digit(c.data[i])];
    if (begin[digit(c.data[0])] == c.size) continue;  // all in one bucket
    std::int32_t total = 0;
    for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      const std::int32_t n = begin[bucket];
      begin[bucket] = total;
      total += n;
    }
    for (std::int32_t i = 0; i < c.size; ++i) c.scratch[begin[digit(c.data[i])]++] = c.data[i];
    Candidate* sorted = c.scratch;
    c.scratch = c.data;
    c.data = sorted;
  }
}

template <std::int32_t kDigitBits>
UNPACED_HD void radix_sort_by_logit(Candidates& c) noexcept {
  if (!c.by_token) radix_sort<kDigitBits>(c, TokenKey{});  // ties stay in this order
  radix_sort<kDigitBits>(c, LogitKey{});
}

}  // namespace sort_detail

UNPACED_HD inline void sort_by_logit(Candidates& c) noexcept {
  if (c.sorted) return;
#if defined(__CUDA_ARCH__)
  // The counting passes would reserve 8 KiB of local memory for every thread of the device.
  introsort(c.data, c.size, BetterCandidate{});
#else
  if (c.size < sort_detail::kRadixMin) {
    introsort(c.data, c.size, BetterCandidate{});
  } else if (c.size < sort_detail::kWideMin) {
    sort_detail::radix_sort_by_logit<8>(c);
  } else {
    sort_detail::radix_sort_by_logit<11>(c);
  }
#endif
  c.sorted = true;
  c.by_token = false;
}

}  // namespace unpaced
