// The text of every token, in one block: what reads it neither copies nor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace unpaced {

class Vocabulary;

// Constant once made: any thread.
class TokenPieces {
 public:
  // Control tokens as their text if `special`, else as nothing.
  TokenPieces(const Vocabulary& vocabulary, bool special);
  explicit TokenPieces(std::span<const std::string> pieces) {
    for (const std::string& piece : pieces) add(piece);
  }

  // Bytes: a token may be part of a UTF-8 sequence. `token` in [0, size()).
  [[nodiscard]] std::string_view operator[](TokenId token) const noexcept {
    const auto i = static_cast<std::size_t>(token);
    return {text_.data() + begin_[i], begin_[i + 1] - begin_[i]};
  }
  [[nodiscard]] std::int32_t size() const noexcept {
    return static_cast<std::int32_t>(begin_.size()) - 1;
  }

 private:
  void add(std::string_view piece) {
    text_ += piece;
    begin_.push_back(text_.size());
  }

  std::string text_;
  std::vector<std::size_t> begin_{0};  // of each token in text_, and the end
};

}  // namespace unpaced
