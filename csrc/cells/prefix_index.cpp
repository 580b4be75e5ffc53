#include "cells/prefix_index.h"

#include <algorithm>

namespace unpaced {

PrefixIndex::PrefixIndex(std::int32_t n_sequences)
    : n_(n_sequences),
      common_(static_cast<std::size_t>(n_sequences) * static_cast<std::size_t>(n_sequences), 0) {}

void PrefixIndex::set(std::int32_t a, std::int32_t b, std::int32_t n) noexcept {
  std::int32_t& there = common_[index_of(a, b)];
  n_pairs_ += (n > 0 ? 1 : 0) - (there > 0 ? 1 : 0);
  there = common_[index_of(b, a)] = n;
}

void PrefixIndex::share(std::int32_t from, std::int32_t to, std::int32_t n) noexcept {
  if (from == to) return;
  ++version_;
  for (std::int32_t other = 0; other < n_; ++other) {
    if (other != from && other != to) set(to, other, std::min(n, n_common(from, other)));
  }
  set(to, from, n);
}

void PrefixIndex::cut(std::int32_t sequence, std::int32_t n) noexcept {
  if (n_pairs_ == 0) return;
  for (std::int32_t other = 0; other < n_; ++other) {
    if (other == sequence || n_common(sequence, other) <= n) continue;
    ++version_;
    set(sequence, other, n);
  }
}

void PrefixIndex::clear() noexcept {
  ++version_;
  n_pairs_ = 0;
  std::ranges::fill(common_, 0);
}

std::int32_t PrefixIndex::n_shared(std::int32_t sequence) const noexcept {
  if (n_pairs_ == 0) return 0;
  const auto begin = common_.begin() + static_cast<std::ptrdiff_t>(index_of(sequence, 0));
  return *std::max_element(begin, begin + n_);
}

// Of a path in a tree, what no path before it has passed is what follows the place where it leaves
// the last of them.
std::int32_t PrefixIndex::n_distinct(std::span<const Held> all) const noexcept {
  std::int32_t n = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int32_t n_known = 0;
    for (std::size_t j = 0; n_pairs_ > 0 && j < i; ++j) {
      const std::int32_t n_both = n_common(all[i].sequence, all[j].sequence);
      n_known = std::max(n_known, std::min(n_both, all[j].n));
    }
    n += std::max(0, all[i].n - n_known);
  }
  return n;
}

void PrefixIndex::match(std::span<const TokenId> prompt, std::span<Holder> holders) const noexcept {
  for (std::size_t i = 0; i < holders.size(); ++i) {
    Holder& holder = holders[i];
    std::int32_t n_known = 0;  // tokens of it that have been looked at, in the cells of another one
    std::int32_t n_equal = 0;  // first ones of them that are the prompt's
    for (std::size_t j = 0; n_pairs_ > 0 && holder.sequence >= 0 && j < i; ++j) {
      if (holders[j].sequence < 0) continue;
      const std::int32_t n_both = n_common(holder.sequence, holders[j].sequence);
      if (n_both <= n_known) continue;
      n_known = n_both;
      n_equal = std::min(n_both, holders[j].n_match);
    }
    holder.n_match = n_equal;
    if (n_equal < n_known) continue;
    const auto from = static_cast<std::size_t>(n_equal);
    const std::size_t n_most = std::min(prompt.size(), holder.tokens.size());
    if (from >= n_most) continue;
    const auto end = prompt.begin() + static_cast<std::ptrdiff_t>(n_most);
    const auto differs =
        std::mismatch(prompt.begin() + n_equal, end, holder.tokens.begin() + n_equal).first;
    holder.n_match = static_cast<std::int32_t>(differs - prompt.begin());
  }
}

}  // namespace unpaced
