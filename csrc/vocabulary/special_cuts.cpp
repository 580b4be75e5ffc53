#include "vocabulary/special_cuts.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace unpaced {
namespace {

struct Occurrence {
  std::size_t begin = 0;
  std::size_t length = 0;
  std::int32_t token = -1;

  [[nodiscard]] std::size_t end() const noexcept { return begin + length; }
};

// As std::isspace in the "C" locale, with which llama.cpp strips.
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Tells which occurrences are certain to be found, given the longest one at each place in order.
class CertainFinds {
 public:
  // The occurrence that is certain now that the text has been seen up to `at`.
  std::optional<Occurrence> settle(std::size_t at) {
    if (!open_ || at < open_->end()) return std::nullopt;
    // What overlaps it is not found, and what comes after it does not depend on what came before.
    overlapping_.clear();
    return std::exchange(open_, std::nullopt);
  }

  // The next occurrence; `settle` has been asked up to its place.
  void add(const Occurrence& next, bool may_cut) {
    std::erase_if(overlapping_, [&](const Occurrence& o) { return o.end() <= next.begin; });
    if (open_ && (next.length > open_->length ||
                  (next.length == open_->length && next.token != open_->token))) {
      open_.reset();
    }
    const bool is_longest = std::ranges::none_of(
        overlapping_, [&](const Occurrence& o) { return o.length >= next.length; });
    overlapping_.push_back(next);
    if (may_cut && is_longest) open_ = next;
  }

 private:
  std::vector<Occurrence> overlapping_;  // those that reach beyond the place of the last one
  std::optional<Occurrence> open_;       // is certain unless something that overlaps it still comes
};

}  // namespace

SpecialCuts::SpecialCuts(const llama_vocab* vocab, bool parse_special) {
  const int kinds = LLAMA_TOKEN_ATTR_USER_DEFINED |
                    (parse_special ? LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN : 0);
  const int never = parse_special ? 0 : LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
  bool strips = false;
  std::vector<std::int32_t> with_blanks;
  for (std::int32_t token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const int attributes = llama_vocab_get_attr(vocab, token);
    if ((attributes & kinds) == 0 || (attributes & never) != 0) continue;
    const std::string_view text = llama_vocab_get_text(vocab, token);
    if (text.empty()) continue;
    const bool strips_left = (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0;
    const bool strips_right = (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0;
    texts_.add(text, token);
    strips = strips || strips_left || strips_right;
    // A cut must not part a token from the white space that it swallows.
    if (!strips_left) sides_[token] = Side::kBefore;
    if (strips_left && !strips_right) sides_[token] = Side::kAfter;
    if (is_blank(text.front()) || is_blank(text.back())) with_blanks.push_back(token);
  }
  if (!strips) return;
  for (const std::int32_t token : with_blanks) sides_.erase(token);  // another one may swallow it
}

std::vector<SpecialCuts::Part> SpecialCuts::parts(std::string_view text,
                                                  std::size_t n_bytes) const {
  std::vector<Part> parts;
  CertainFinds finds;
  std::size_t begin = 0;
  std::size_t n_special = 0;
  const auto cut = [&](std::size_t at) {
    if (at - begin < n_bytes || at == text.size()) return;
    parts.push_back({.text = text.substr(begin, at - begin), .n_special = n_special});
    begin = at;
    n_special = 0;
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (const auto found = finds.settle(at)) {
      cut(sides_.at(found->token) == Side::kBefore ? found->begin : found->end());
    }
    const SpecialTexts::Match match = texts_.longest_at(text, at);
    if (match.length == 0) continue;
    ++n_special;
    finds.add({.begin = at, .length = match.length, .token = match.token},
              sides_.contains(match.token));
  }
  parts.push_back({.text = text.substr(begin), .n_special = n_special});
  return parts;
}

}  // namespace unpaced
