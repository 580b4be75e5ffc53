#include "vocabulary.h"

#include <limits>
#include <stdexcept>

namespace unpaced {

std::vector<std::int32_t> Vocabulary::tokenize(std::string_view text, bool add_special,
                                               bool parse_special) const {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::length_error("the text is longer than 2^31 - 1 bytes");
  }
  const auto n_bytes = static_cast<std::int32_t>(text.size());
  // A token is at least a byte, except for the special ones that may be put around the text.
  std::vector<std::int32_t> tokens(text.size() + 4);
  std::int32_t n =
      llama_tokenize(vocab_, text.data(), n_bytes, tokens.data(),
                     static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
  if (n < 0 && n != std::numeric_limits<std::int32_t>::min()) {
    tokens.resize(static_cast<std::size_t>(-n));
    n = llama_tokenize(vocab_, text.data(), n_bytes, tokens.data(), -n, add_special, parse_special);
  }
  if (n < 0) throw std::length_error("the text has more than 2^31 - 1 tokens");
  tokens.resize(static_cast<std::size_t>(n));
  return tokens;
}

std::string Vocabulary::piece(std::int32_t token, bool special) const {
  if (token < 0 || token >= n_tokens_) {
    throw std::out_of_range("token " + std::to_string(token) + " is not in [0, " +
                            std::to_string(n_tokens_) + ")");
  }
  std::string text(32, '\0');
  std::int32_t n = llama_token_to_piece(vocab_, token, text.data(),
                                        static_cast<std::int32_t>(text.size()), 0, special);
  if (n < 0) {
    text.resize(static_cast<std::size_t>(-n));
    n = llama_token_to_piece(vocab_, token, text.data(), -n, 0, special);
  }
  text.resize(static_cast<std::size_t>(n < 0 ? 0 : n));
  return text;
}

std::string Vocabulary::detokenize(std::span<const std::int32_t> tokens, bool special) const {
  std::string text;
  for (const std::int32_t token : tokens) text += piece(token, special);
  return text;
}

}  // namespace unpaced
