// What tells which tokens may follow: the seam between the hand-over of masks and a grammar engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/token.h"

namespace unpaced {

// The state of one sequence under its grammar. One thread at a time. Every method may fail, for
// good, unless it is restarted: failure() is not empty then.
class TokenMatcher {
 public:
  TokenMatcher() = default;
  TokenMatcher(const TokenMatcher&) = delete;
  TokenMatcher& operator=(const TokenMatcher&) = delete;
  virtual ~TokenMatcher() = default;

  // Tokens of the vocabulary; ids passed in are below it.
  [[nodiscard]] virtual std::int32_t n_vocab() const noexcept = 0;
  // Whether the token may come next. Cheap.
  [[nodiscard]] virtual bool allows(TokenId token) = 0;
  // Whether fill() has next to nothing to do.
  [[nodiscard]] virtual bool has_mask() { return false; }
  // Bit i % 32 of word i / 32 is set where token i may come next. Fills every word, and no bit past
  // the vocabulary. What it says of a token is what allows() says.
  virtual void fill(std::span<std::uint32_t> words) = 0;
  // The token came. It must be allowed.
  virtual void accept(TokenId token) = 0;
  // Text that came, whatever its tokens were. It must be allowed.
  virtual void accept_text(std::string_view text) = 0;
  // As it was at the beginning, failed or not.
  virtual void restart() = 0;
  // Why the matcher cannot go on, in one sentence; empty while it can.
  [[nodiscard]] virtual std::string failure() const = 0;
};

}  // namespace unpaced
