// The mask of a request's next token, and how it reaches the thread that draws.
//
// A worker thread of the request's own runs the grammar. While the model computes the logits of a
// step, the worker computes the mask of the same step: it starts when accept() tells it the token
// before. So the drawing thread normally finds the mask there and only tests a bit. A grammar whose
// masks take long is asked about the drawn token alone, which is cheap, and computes a mask only
// where that token is refused.
//
//   drawing thread, each step:  token = draw from the logits as they are
//                               switch (mask.check(token)) {
//                                 kAllowed: accept(token); publish it
//                                 kDenied:  token = draw again from the logits with every token
//                                           that words() has no bit for at -inf; accept(token)
//                                 kFailed:  end the request; failure() says why }
//
// Draw first and mask only after a refusal is llama-server's order (llama.cpp 0c1e57098
// common/sampling.cpp:640-680): it takes a second random number then, which a seed's tokens depend
// on. A device that draws does the same; it may upload words() after kDenied, and must be done with
// them when accept() is called.
//
// The two threads share two words, posted_ and published_; each is written by one of them, waited
// for by the other with a futex, and carries the plain fields written before it: released by the
// store, acquired by the load. The drawing thread posts one thing at a time and posts no token to
// accept before the check of that token has been answered, so no field is written while it is read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "grammar/mask_board.h"
#include "grammar/token_matcher.h"
#include "grammar/trigger_watch.h"

namespace unpaced {

struct TokenMaskLimits {
  // A grammar whose masks usually take longer is asked about single tokens.
  std::chrono::microseconds eager_for{300};
  // The same of one that has a board. Who looks there has to leave its loop where a mask is not
  // made, which costs more than to wait for most.
  std::chrono::microseconds eager_on_board{1500};
  // The drawing thread waits for an answer no longer than this: then the request fails.
  std::chrono::milliseconds answer_within{2000};
};

class TokenMask {
 public:
  enum class Verdict : std::uint8_t { kAllowed, kDenied, kFailed };

  // Starts the worker, which owns the matcher. `watch`: of a lazy grammar; until a trigger comes
  // every token may, and the worker sleeps. Throws std::system_error without a thread.
  explicit TokenMask(std::unique_ptr<TokenMatcher> matcher,
                     std::unique_ptr<TriggerWatch> watch = nullptr,
                     const TokenMaskLimits& limits = {});
  // Tells the worker to go, and does not wait for it.
  ~TokenMask();
  TokenMask(const TokenMask&) = delete;
  TokenMask& operator=(const TokenMask&) = delete;

  // Drawing thread only. May `token` come next? Waits, with a limit, where the worker is not ready.
  // Takes no lock and no memory.
  [[nodiscard]] Verdict check(TokenId token) noexcept;
  // The same, but waits no longer than `limit`. No verdict: ask again, for this token. All the
  // asking for a step together takes no longer than check() does: then the verdict is kFailed.
  [[nodiscard]] std::optional<Verdict> check_within(TokenId token,
                                                    std::chrono::nanoseconds limit) noexcept;

  // Drawing thread only, after kDenied until accept(): the mask of this step, one bit a token, bit
  // i % 32 of word i / 32; 1: may come. No bit past the vocabulary is set.
  [[nodiscard]] std::span<const std::uint32_t> words() const noexcept;
  [[nodiscard]] bool allows(TokenId token) const noexcept;  // words() has its bit

  // Drawing thread only. No grammar holds yet: check() allows every token without asking anybody,
  // and need not be called before accept().
  [[nodiscard]] bool waits() const noexcept;

  // Drawing thread only. The token, which check() or words() allowed, is the sequence's next.
  void accept(TokenId token) noexcept;

  // Drawing thread only, once: from now on the worker leaves every mask that it makes on the board
  // as well, for a drawer that need not call check(). The thread that called this does for it what
  // is the drawing thread's, accept() for one. While the board is slow, check() counts the masks
  // that it finds ready as in time.
  void use(std::shared_ptr<MaskBoard> board) noexcept;
  // The board; null: there is none.
  [[nodiscard]] MaskBoard* board() const noexcept;
  // Drawing thread only, while the grammar holds: the step at hand, as the board has it.
  [[nodiscard]] std::uint32_t step() const noexcept;

  // Any thread. Why the request cannot go on, after kFailed; else empty.
  [[nodiscard]] std::string failure() const;

  // Any thread: what the worker did, for measurements. Nanoseconds of the last and longest mask.
  [[nodiscard]] std::uint64_t n_masks() const noexcept;
  [[nodiscard]] std::uint64_t n_checks() const noexcept;  // single tokens asked of the grammar
  [[nodiscard]] std::uint64_t mask_ns_total() const noexcept;

 private:
  struct Channel;
  const std::shared_ptr<Channel> channel_;  // the worker holds it too
};

}  // namespace unpaced
