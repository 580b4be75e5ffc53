#include "request/stop_strings.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace unpaced {

std::string_view TokenText::operator[](TokenId token) const noexcept {
  const bool spelled = std::binary_search(spelled_out.begin(), spelled_out.end(), token);
  return spelled ? (*special)[token] : (*pieces)[token];
}

StopStrings::StopStrings(TokenText text, std::span<const std::string> stops)
    : text_(std::move(text)) {
  std::size_t n_bytes = 0;
  for (const std::string& stop : stops) n_bytes += stop.size();
  if (n_bytes > kMaxBytes) {
    throw std::invalid_argument("stop: over " + std::to_string(kMaxBytes) + " bytes together");
  }
  const std::size_t n = (n_bytes + 63) / 64;
  starts_.resize(n);
  ends_.resize(n);
  agree_.resize(256 * n);
  std::size_t at = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    starts_[at / 64] |= 1ULL << at % 64;
    for (const char c : stop) {
      agree_[static_cast<unsigned char>(c) * n + at / 64] |= 1ULL << at % 64;
      ++at;
    }
    ends_[(at - 1) / 64] |= 1ULL << (at - 1) % 64;
  }
}

std::size_t StopStrings::advance(TokenId token, std::span<std::uint64_t> matched) const noexcept {
  const std::size_t n = n_words();
  const std::string_view text = text_[token];
  std::size_t n_bytes = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::uint64_t* agree = &agree_[static_cast<unsigned char>(text[at]) * n];
    std::uint64_t carry = 0;
    std::uint64_t ended = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t before = matched[i];
      // A bit that leaves a stop's end arrives at the next one's start, which is always set.
      matched[i] = (before << 1 | carry | starts_[i]) & agree[i];
      carry = before >> 63;
      ended |= matched[i] & ends_[i];
    }
    if (ended != 0) n_bytes = std::max(n_bytes, longest_ended(matched) + text.size() - at - 1);
  }
  return n_bytes;
}

std::size_t StopStrings::longest_ended(std::span<const std::uint64_t> matched) const noexcept {
  std::size_t longest = 0;
  std::size_t start = 0;
  for (std::size_t bit = 0; bit < n_words() * 64; ++bit) {
    const auto has = [bit](std::span<const std::uint64_t> bits) {
      return (bits[bit / 64] >> bit % 64 & 1U) != 0;
    };
    if (has(starts_)) start = bit;
    if (has(ends_) && has(matched)) longest = std::max(longest, bit - start + 1);
  }
  return longest;
}

std::vector<std::uint32_t> StopStrings::completing_tokens() const {
  const std::int32_t n_tokens = text_.pieces->size();
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(n_tokens) / 32 + 1);
  std::vector<std::uint64_t> matched(n_words());
  for (TokenId token = 0; token < n_tokens; ++token) {
    // After some text or other any part of any stop may be matched.
    std::fill(matched.begin(), matched.end(), ~0ULL);
    if (advance(token, matched) > 0)
      tokens[static_cast<std::size_t>(token / 32)] |= 1U << token % 32;
  }
  return tokens;
}

}  // namespace unpaced
