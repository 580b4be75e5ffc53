#include "vocabulary/vocabulary.h"

#include <limits>
#include <stdexcept>

namespace unpaced {
namespace {

// Texts up to this size go to llama.cpp whole: few special tokens fit.
constexpr std::size_t kPartBytes = 4096;

}  // namespace

std::vector<std::int32_t> Vocabulary::tokenize(std::string_view text, bool add_special,
                                               bool parse_special) const {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::length_error("the text is longer than 2^31 - 1 bytes");
  }
  std::vector<std::int32_t> tokens;
  if (text.size() <= kPartBytes) {
    append_tokens(text, add_special, parse_special, tokens);
    return tokens;
  }
  // What goes around the text, in order: BOS, EOS, either or none.
  std::vector<std::int32_t> around;
  if (add_special) append_tokens("", true, parse_special, around);
  const bool has_first = around.size() == 2 || (!around.empty() && llama_vocab_get_add_bos(vocab_));
  if (has_first) tokens.push_back(around.front());
  for (const SpecialCuts::Part& part : cuts(parse_special).parts(text, kPartBytes)) {
    if (part.n_special > kTangledMax) {
      throw std::length_error("the text has over " + std::to_string(kTangledMax) +
                              " special tokens that overlap each other");
    }
    append_tokens(part.text, false, parse_special, tokens);
  }
  if (around.size() == 2 || (around.size() == 1 && !has_first)) tokens.push_back(around.back());
  return tokens;
}

void Vocabulary::append_tokens(std::string_view text, bool add_special, bool parse_special,
                               std::vector<std::int32_t>& tokens) const {
  const auto n_bytes = static_cast<std::int32_t>(text.size());
  const std::size_t n_before = tokens.size();
  // A token is at least a byte, except for the special ones that may be put around the text.
  tokens.resize(n_before + text.size() + 4);
  const auto n_room = [&] { return static_cast<std::int32_t>(tokens.size() - n_before); };
  std::int32_t n = llama_tokenize(vocab_, text.data(), n_bytes, tokens.data() + n_before, n_room(),
                                  add_special, parse_special);
  if (n < 0 && n != std::numeric_limits<std::int32_t>::min()) {
    tokens.resize(n_before + static_cast<std::size_t>(-n));
    n = llama_tokenize(vocab_, text.data(), n_bytes, tokens.data() + n_before, n_room(),
                       add_special, parse_special);
  }
  if (n < 0) throw std::length_error("the text has more than 2^31 - 1 tokens");
  tokens.resize(n_before + static_cast<std::size_t>(n));
}

const SpecialCuts& Vocabulary::cuts(bool parse_special) const {
  const std::size_t i = parse_special ? 1 : 0;
  std::call_once(cuts_made_[i], [&] { cuts_[i].emplace(vocab_, parse_special); });
  return *cuts_[i];
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
