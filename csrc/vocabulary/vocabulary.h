// Text to tokens and back with llama.cpp's own tokeniser, ids and sizes checked first: an id out of
// range aborts inside libllama. Any thread; a TaskThread for texts over kAnyStackBytes.
#pragma once

#include <llama.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary/special_cuts.h"

namespace unpaced {

class Vocabulary {
 public:
  // A text so short may be tokenised with an ordinary stack.
  static constexpr std::size_t kAnyStackBytes = 2048;
  // Special texts between two places at which a text can be cut. llama.cpp's time for them grows
  // with the square of their number: this many take about 0.1 s.
  static constexpr std::size_t kTangledMax = 8192;

  explicit Vocabulary(const llama_vocab* vocab)
      : vocab_(vocab), n_tokens_(llama_vocab_n_tokens(vocab)) {}

  // Throws std::length_error for text over 2^31 - 1 bytes, or with over kTangledMax special texts
  // that overlap each other so that it cannot be cut between them.
  [[nodiscard]] std::vector<std::int32_t> tokenize(std::string_view text, bool add_special,
                                                   bool parse_special) const;
  // The concatenated pieces, control tokens as their text if `special`, else as nothing. Bytes:
  // a token may be part of a UTF-8 sequence. Throws std::out_of_range for an id that is not in
  // [0, n_tokens).
  [[nodiscard]] std::string detokenize(std::span<const std::int32_t> tokens, bool special) const;
  [[nodiscard]] std::string piece(std::int32_t token, bool special) const;

  [[nodiscard]] const llama_vocab* get() const noexcept { return vocab_; }
  [[nodiscard]] std::int32_t n_tokens() const noexcept { return n_tokens_; }

 private:
  void append_tokens(std::string_view text, bool add_special, bool parse_special,
                     std::vector<std::int32_t>& tokens) const;
  // Made when the first long text comes.
  [[nodiscard]] const SpecialCuts& cuts(bool parse_special) const;

  const llama_vocab* vocab_;
  std::int32_t n_tokens_;
  mutable std::array<std::once_flag, 2> cuts_made_;
  mutable std::array<std::optional<SpecialCuts>, 2> cuts_;  // by parse_special
};

}  // namespace unpaced
