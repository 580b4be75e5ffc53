#include "sampling/chain/dry_breakers.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "llama.h"

namespace unpaced {
namespace {

constexpr std::size_t kMaxBreakerBytes = 40;
constexpr std::size_t kMaxTailTokens = 20;

// The text of one token by itself, control tokens as their text.
std::string_view text_of(const llama_vocab* vocab, TokenId token, std::string& buffer) {
  const auto detokenize = [&] {
    const auto capacity = static_cast<std::int32_t>(buffer.size());
    return llama_detokenize(vocab, &token, 1, buffer.data(), capacity, false, true);
  };
  std::int32_t n = detokenize();
  if (n < 0) {
    buffer.resize(static_cast<std::size_t>(-n));
    n = detokenize();
  }
  return {buffer.data(), static_cast<std::size_t>(std::max(n, 0))};
}

std::vector<TokenId> tokenize(const llama_vocab* vocab, std::string_view text) {
  if (text.empty()) return {};
  std::vector<TokenId> tokens(text.size() + 2);
  for (;;) {
    const std::int32_t n =
        llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                       static_cast<std::int32_t>(tokens.size()), false, false);
    tokens.resize(static_cast<std::size_t>(n < 0 ? -n : n));
    if (n >= 0) return tokens;
  }
}

struct Breaker {
  TokenId head;
  std::vector<TokenId> tail;

  bool operator==(const Breaker&) const = default;
};

// Adds what `word`, the text of `token`, has of the string: all of it, or a beginning at its end.
void add_overlaps(const llama_vocab* vocab, TokenId token, std::string_view word,
                  std::string_view string, std::vector<Breaker>& found) {
  if (word.find(string) != std::string_view::npos) {
    found.push_back({token, {}});
    return;
  }
  for (std::size_t at = word.find(string[0]); at != std::string_view::npos;
       at = word.find(string[0], at + 1)) {
    const std::string_view rest = word.substr(at);  // shorter than the string, or it does not match
    if (!string.starts_with(rest)) continue;
    std::vector<TokenId> tail = tokenize(vocab, string.substr(rest.size()));
    tail.resize(std::min(tail.size(), kMaxTailTokens));
    found.push_back({token, std::move(tail)});
  }
}

}  // namespace

DryBreakers make_dry_breakers(const llama_vocab* vocab, std::span<const std::string> breakers) {
  std::vector<std::string_view> strings;
  for (const std::string& breaker : breakers) {
    const std::string_view string(breaker.c_str());
    if (!string.empty()) strings.push_back(string.substr(0, kMaxBreakerBytes));
  }
  DryBreakers result;
  if (strings.empty()) return result;
  std::string buffer(64, '\0');
  std::vector<Breaker> found;
  for (TokenId token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const std::string_view word = text_of(vocab, token, buffer);
    found.clear();
    for (const std::string_view string : strings) {
      add_overlaps(vocab, token, word, string, found);
    }
    for (auto breaker = found.begin(); breaker != found.end(); ++breaker) {
      if (std::find(found.begin(), breaker, *breaker) != breaker) continue;  // said before
      const auto begin = static_cast<std::int32_t>(result.tails.size());
      result.tails.insert(result.tails.end(), breaker->tail.begin(), breaker->tail.end());
      result.entries.push_back({token, begin, static_cast<std::int32_t>(result.tails.size())});
    }
  }
  return result;
}

}  // namespace unpaced
