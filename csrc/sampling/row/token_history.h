// The tokens of a sequence so far, with the newest ones always contiguous in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"

namespace unpaced {

// Keeps the last `capacity` tokens at least. All memory is taken in the constructor. One thread.
class TokenHistory {
 public:
  explicit TokenHistory(std::int32_t capacity)
      : capacity_(capacity), tokens_(2 * static_cast<std::size_t>(capacity)) {}

  void clear() noexcept { end_ = 0; }

  void push(TokenId token) noexcept {
    if (end_ == tokens_.size()) {  // once every `capacity_` tokens
      std::copy_n(tokens_.end() - capacity_, capacity_, tokens_.begin());
      end_ = static_cast<std::size_t>(capacity_);
    }
    tokens_[end_++] = token;
  }

  std::int32_t capacity() const noexcept { return capacity_; }

  // At most the last n tokens, oldest first. n <= capacity.
  std::span<const TokenId> last(std::int32_t n) const noexcept {
    const std::size_t size = std::min(end_, static_cast<std::size_t>(n));
    return {tokens_.data() + end_ - size, size};
  }

 private:
  std::int32_t capacity_;
  std::vector<TokenId> tokens_;
  std::size_t end_ = 0;
};

}  // namespace unpaced
