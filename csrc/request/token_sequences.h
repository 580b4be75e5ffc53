// Watches tokens for a few short sequences of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"

namespace unpaced {

// One thread at a time. Takes its memory in the constructor.
class TokenSequences {
 public:
  // Empty ones are left out; of equal ones the first counts.
  explicit TokenSequences(std::span<const std::vector<TokenId>> sequences) {
    for (const std::vector<TokenId>& sequence : sequences) {
      if (sequence.empty()) continue;
      sequences_.push_back(sequence);
      longest_ = std::max(longest_, sequence.size());
    }
    tail_.reserve(longest_);
  }

  // One more token. The number of the longest sequence that ends with it, or -1. After a sequence
  // has ended, its tokens are part of no other.
  std::int32_t advance(TokenId token) noexcept {
    if (sequences_.empty()) return -1;
    if (tail_.size() == longest_) tail_.erase(tail_.begin());
    tail_.push_back(token);
    std::int32_t found = -1;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (!ends_with(sequences_[i])) continue;
      if (found < 0 || sequences_[i].size() > at(found).size()) {
        found = static_cast<std::int32_t>(i);
      }
    }
    if (found >= 0) reset();
    return found;
  }

  // No sequence has begun.
  void reset() noexcept { tail_.clear(); }

  // By the number that advance() gave.
  [[nodiscard]] std::span<const TokenId> at(std::int32_t number) const noexcept {
    return sequences_[static_cast<std::size_t>(number)];
  }

 private:
  [[nodiscard]] bool ends_with(std::span<const TokenId> sequence) const noexcept {
    return tail_.size() >= sequence.size() &&
           std::equal(sequence.rbegin(), sequence.rend(), tail_.rbegin());
  }

  std::vector<std::vector<TokenId>> sequences_;
  std::size_t longest_ = 0;
  std::vector<TokenId> tail_;  // the newest tokens, at most as many as the longest sequence has
};

}  // namespace unpaced
