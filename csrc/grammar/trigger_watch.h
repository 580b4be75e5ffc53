// What a lazy grammar waits for: the text is free until a trigger comes, and costs a few
// comparisons a token until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_trigger.h"
#include "request/token_pieces.h"

namespace unpaced {

// A text, found in a stream of bytes wherever it begins (Knuth, Morris and Pratt, "Fast pattern
// matching in strings", 1977).
class WatchedText {
 public:
  explicit WatchedText(std::string text);

  [[nodiscard]] std::size_t size() const noexcept { return text_.size(); }
  // One more byte. True: the text ends in it. An empty text never does.
  bool advance(char byte) noexcept;
  void reset() noexcept { n_matched_ = 0; }

 private:
  std::string text_;
  std::vector<std::size_t> border_;  // of each beginning: its longest end that it also begins with
  std::size_t n_matched_ = 0;
};

// What sequences under one lazy grammar wait for. Constant once made: any thread.
class CompiledTriggers {
 public:
  // Words with more bytes than this together are not looked through for the tokens that complete
  // them: every token is one of those then.
  static constexpr std::size_t kMaxListedBytes = 4096;

  // `pieces`: control tokens spelled out. `lists_tokens`: for a loop that must be left at a
  // trigger.
  CompiledTriggers(std::shared_ptr<const TokenPieces> pieces, std::vector<GrammarTrigger> triggers,
                   QuietSpan quiet, bool may_resume, bool lists_tokens);

  [[nodiscard]] const TokenPieces& pieces() const noexcept { return *pieces_; }
  [[nodiscard]] const std::vector<GrammarTrigger>& triggers() const noexcept { return triggers_; }
  [[nodiscard]] const QuietSpan& quiet() const noexcept { return quiet_; }
  // A trigger that goes on as the grammar cannot does not count: the text stays free. Else the
  // request fails there.
  [[nodiscard]] bool may_resume() const noexcept { return may_resume_; }
  // Bitset of the tokens that can complete a trigger; null: not listed.
  [[nodiscard]] const std::vector<std::uint32_t>* completing_tokens() const noexcept {
    return completing_tokens_.empty() ? nullptr : &completing_tokens_;
  }

 private:
  const std::shared_ptr<const TokenPieces> pieces_;
  const std::vector<GrammarTrigger> triggers_;
  const QuietSpan quiet_;
  const bool may_resume_;
  std::vector<std::uint32_t> completing_tokens_;
};

// One sequence. One thread at a time; nothing allocates after the constructor.
class TriggerWatch {
 public:
  explicit TriggerWatch(std::shared_ptr<const CompiledTriggers> compiled);

  // One more token. True: a trigger is complete, and text() and tokens() are what the grammar
  // begins with, until the next call.
  bool accept(TokenId token) noexcept;

  [[nodiscard]] bool may_resume() const noexcept { return compiled_->may_resume(); }
  [[nodiscard]] std::string_view text() const noexcept { return text_; }
  [[nodiscard]] std::span<const TokenId> tokens() const noexcept { return tokens_; }

 private:
  struct Found {
    const GrammarTrigger* trigger = nullptr;
    std::ptrdiff_t begin = 0;  // from the newest token's first byte on
    std::size_t end = 0;
  };

  [[nodiscard]] Found look_through(std::string_view piece) noexcept;
  void begin_with(const Found& found, TokenId token, std::string_view piece) noexcept;
  void remember(TokenId token) noexcept;
  void forget() noexcept;

  const std::shared_ptr<const CompiledTriggers> compiled_;
  std::vector<WatchedText> words_;  // of the compiled triggers; empty for those that are tokens
  WatchedText quiet_start_;
  WatchedText quiet_end_;
  bool is_quiet_;
  std::size_t n_recent_ = 0;     // tokens that a word may have begun in
  std::vector<TokenId> recent_;  // the last ones, oldest first
  std::string_view text_;        // of the vocabulary's pieces
  std::vector<TokenId> tokens_;
};

}  // namespace unpaced
