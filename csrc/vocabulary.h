// Text to tokens and back with llama.cpp's own tokeniser, ids and sizes checked first: an id out of
// range aborts inside libllama. Call tokenize() on a TaskThread.
#pragma once

#include <llama.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unpaced {

class Vocabulary {
 public:
  explicit Vocabulary(const llama_vocab* vocab)
      : vocab_(vocab), n_tokens_(llama_vocab_n_tokens(vocab)) {}

  // Throws std::length_error for text over 2^31 - 1 bytes.
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
  const llama_vocab* vocab_;
  std::int32_t n_tokens_;
};

}  // namespace unpaced
