// Grammars over the model's vocabulary, compiled by llguidance.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/task_pool.h"
#include "grammar/llguidance_library.h"
#include "grammar/mask_memory.h"
#include "grammar/token_mask.h"
#include "grammar/trigger_watch.h"
#include "vocabulary/vocabulary.h"

namespace unpaced {

// Stops that a grammar runs into, at compile time and at each token. They bound time and memory.
struct GrammarLimits {
  std::uint64_t compile_fuel = 5'000'000;  // about 50,000 a millisecond
  std::uint64_t step_fuel = 1'000'000;     // about 14,000 a millisecond
  std::size_t step_items = 1'000'000;      // about 20,000 a millisecond
  std::size_t row_items = 2000;
  std::size_t lexer_states = 50'000;  // about 2 KB each
  std::size_t size = 200'000;         // symbols
};

// What a grammar needs of a model's vocabulary. By token.
struct GrammarVocabulary {
  explicit GrammarVocabulary(const Vocabulary& vocabulary);

  std::vector<std::string> texts;   // what a client sees; a control token has none
  std::vector<std::string> pieces;  // control tokens spelled out
  std::vector<bool> is_eog;
};

class GrammarEngine;

// A compiled grammar. Immutable; any thread.
class Grammar : public std::enable_shared_from_this<Grammar> {
 public:
  // `memory`: of its masks; null: none are kept.
  Grammar(std::shared_ptr<GrammarEngine> engine, LlgMatcher* start,
          std::unique_ptr<MaskMemory> memory);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // The grammar of one sequence, from its first token on, or from the first trigger of `triggers`
  // on; the tokens before are free.
  [[nodiscard]] std::shared_ptr<TokenMask> start(
      std::shared_ptr<const CompiledTriggers> triggers) const;

  [[nodiscard]] const GrammarEngine& engine() const noexcept { return *engine_; }
  [[nodiscard]] MaskMemory* memory() const noexcept { return memory_.get(); }  // null: none
  // Its state at the beginning, for the caller to free.
  [[nodiscard]] LlgMatcher* clone() const;

 private:
  const std::shared_ptr<GrammarEngine> engine_;
  LlgMatcher* const start_;
  const std::unique_ptr<MaskMemory> memory_;
  mutable std::mutex mutex_;  // cloning reads what a clone may share
};

class GrammarEngine : public std::enable_shared_from_this<GrammarEngine> {
 public:
  // Sorts every token of the vocabulary: takes a fraction of a second. `library` and `version`: of
  // llguidance. Throws std::runtime_error.
  GrammarEngine(GrammarVocabulary vocabulary, const std::string& library,
                const std::string& version, const GrammarLimits& limits = {});
  ~GrammarEngine();
  GrammarEngine(const GrammarEngine&) = delete;
  GrammarEngine& operator=(const GrammarEngine&) = delete;

  // Any thread; waits for its turn. kind: "json_schema", "lark" or "regex". `parts`: the same
  // grammar in other words, with which it keeps its masks; empty: it keeps none. Throws
  // std::invalid_argument with the compiler's message.
  [[nodiscard]] std::shared_ptr<Grammar> compile(const std::string& kind, const std::string& text,
                                                 std::vector<GrammarPart> parts = {});

  // What a lazy grammar waits for. A millisecond or more with `lists_tokens`, else nothing. Throws
  // std::invalid_argument.
  [[nodiscard]] std::shared_ptr<const CompiledTriggers> compile_triggers(
      std::vector<GrammarTrigger> triggers, QuietSpan quiet, bool may_resume,
      bool lists_tokens) const;

  [[nodiscard]] const LlguidanceLibrary& library() const noexcept { return library_; }
  [[nodiscard]] const LlgTokenizer* tokenizer() const noexcept { return tokenizer_; }
  [[nodiscard]] std::int32_t n_vocab() const noexcept {
    return static_cast<std::int32_t>(vocabulary_.pieces.size());
  }
  // What a client sees of a token; empty: nothing.
  [[nodiscard]] std::string_view text(TokenId token) const noexcept {
    return vocabulary_.texts[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] bool is_eog(TokenId token) const noexcept {
    return vocabulary_.is_eog[static_cast<std::size_t>(token)];
  }

 private:
  const LlguidanceLibrary library_;
  const GrammarLimits limits_;
  const GrammarVocabulary vocabulary_;
  const std::shared_ptr<const TokenPieces> pieces_;  // control tokens spelled out
  LlgTokenizer* tokenizer_ = nullptr;
  TaskPool compilers_{10};  // schemas and expressions nest
};

}  // namespace unpaced
