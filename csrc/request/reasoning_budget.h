// How long a request's model may reason. Watches the tokens for the tags around reasoning, and once
// the budget is used up says which tokens must come: a message and the end tag.
//
//   kIdle --start tag--> kCounting --budget used up--> kForcing --last forced token--> kDone
//                            |  ^                          ^
//                            |  '- a start tag, from kDone |
//                            |-- within a character --> kWaitingUtf8
//                            '-- end tag --> kDone         (also from kWaitingUtf8)
//
// Source of the states and of what counts: llama.cpp 0c1e57098 common/reasoning-budget.cpp:64-165.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "request/token_pieces.h"
#include "request/token_sequences.h"

namespace unpaced {

struct CompiledBudget {
  std::vector<std::vector<TokenId>> starts;  // each of them begins reasoning
  std::vector<std::vector<TokenId>> ends;    // each of them ends reasoning
  std::vector<TokenId> forced;               // what comes when the budget is used up; not empty
  std::int32_t n_tokens = -1;                // -1: any number
  bool suspends_mask = false;                // the request's grammar does not see reasoning
};

class ReasoningBudget {
 public:
  enum class State : std::uint8_t { kIdle = 0, kCounting, kForcing, kWaitingUtf8, kDone };

  // Front end. `pieces`: texts of all tokens, control tokens as nothing. Every token of the
  // compiled is in [0, pieces->size()).
  ReasoningBudget(CompiledBudget compiled, std::shared_ptr<const TokenPieces> pieces);
  ReasoningBudget(const ReasoningBudget&) = delete;
  ReasoningBudget& operator=(const ReasoningBudget&) = delete;

  // Front end, before the request is submitted: a token of the prompt that belongs to the answer.
  // It counts, but is none of those to be forced, however small the budget.
  void accept_prompt(TokenId token) noexcept;

  // Any thread: the reasoning shall end with the next token. This is ignored where the model is not
  // reasoning then, or is about to stop.
  void end_reasoning() noexcept {
    // relaxed: the flag is all that is said; paired with forced().
    end_asked_.store(true, std::memory_order_relaxed);
  }

  // The rest: decode thread only; nothing allocates.

  // The token that must come next; -1: any may.
  [[nodiscard]] TokenId forced() noexcept;
  // After forced() has named a token: the mask that allows it alone, for Sampler::sample().
  [[nodiscard]] std::span<const std::uint32_t> forced_mask() const noexcept { return mask_; }
  // The token came.
  void accept(TokenId token) noexcept;

  // What is to be forced cannot come: this reasoning is watched no longer.
  void give_up() noexcept { state_ = State::kDone; }

  [[nodiscard]] State state() const noexcept { return state_; }
  // The request's grammar is not asked, and not told, of the next token.
  [[nodiscard]] bool suspends_mask() const noexcept {
    return compiled_.suspends_mask && state_ != State::kIdle && state_ != State::kDone;
  }
  // The end tag that led to kDone; empty where there was none.
  [[nodiscard]] std::span<const TokenId> end_tag() const noexcept;

  [[nodiscard]] std::span<const TokenId> forced_tokens() const noexcept { return compiled_.forced; }

 private:
  void begin_reasoning() noexcept;
  void begin_forcing() noexcept;
  void count(TokenId token) noexcept;

  const CompiledBudget compiled_;
  const std::shared_ptr<const TokenPieces> pieces_;
  TokenSequences starts_;
  TokenSequences ends_;
  State state_ = State::kIdle;
  std::int32_t n_left_ = 0;
  std::size_t n_forced_ = 0;   // of compiled_.forced
  std::int32_t end_tag_ = -1;  // its number among ends_
  TokenId masked_token_ = -1;  // the one that mask_ has a bit for
  std::vector<std::uint32_t> mask_;
  std::atomic<bool> end_asked_{false};
};

}  // namespace unpaced
