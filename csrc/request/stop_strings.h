// A request's stop strings, compiled: found in the bytes of its tokens wherever a token begins or
// ends.
//
// Shift-And (Baeza-Yates and Gonnet, "A new approach to text searching", 1992): the stops are laid
// end to end, one bit a byte. A set bit says that the text ends in the stop's bytes up to that one;
// a byte of text moves every bit on by one and keeps those that it agrees with. A stop string that
// is whole UTF-8 occurs in the bytes exactly where it occurs in the decoded text, since no other
// character's bytes contain the beginning of one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "request/token_pieces.h"

namespace unpaced {

// The text of a request's tokens: control tokens are empty but where the request shows them.
struct TokenText {
  std::shared_ptr<const TokenPieces> pieces;
  std::shared_ptr<const TokenPieces> special;  // control tokens spelled out
  std::vector<TokenId> spelled_out;            // sorted: these as in `special`

  [[nodiscard]] std::string_view operator[](TokenId token) const noexcept;
};

// Constant once made: any thread.
class StopStrings {
 public:
  static constexpr std::size_t kMaxBytes = 65536;  // of all stops together

  // Empty stops are left out. Throws std::invalid_argument beyond kMaxBytes.
  StopStrings(TokenText text, std::span<const std::string> stops);

  // How far each stop is matched: 64 bytes of stops a word.
  [[nodiscard]] std::size_t n_words() const noexcept { return starts_.size(); }
  // Moves `matched` on by the token's bytes. Where stop strings ended in them, the bytes from the
  // beginning of the earliest to the token's end; 0: none did.
  std::size_t advance(TokenId token, std::span<std::uint64_t> matched) const noexcept;

  // The tokens that can complete a stop string after some text, as a bitset of 32-bit words: those
  // whose piece contains a stop, or begins with the end of one. No other token ever does. Takes
  // about a millisecond a million bytes of vocabulary and word: not for the decode thread.
  [[nodiscard]] std::vector<std::uint32_t> completing_tokens() const;

 private:
  // Length of the longest stop string that `matched` says has ended.
  [[nodiscard]] std::size_t longest_ended(std::span<const std::uint64_t> matched) const noexcept;

  const TokenText text_;
  std::vector<std::uint64_t> starts_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::uint64_t> agree_;  // [256][n_words()]: the bits whose byte is this one
};

}  // namespace unpaced
