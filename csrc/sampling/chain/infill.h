// Infill, which makes a text between two others: ends it where the end is likely, counts tokens
// that begin with another one's text together with it, and keeps the few that are likely then.
//
// Source: llama.cpp 0c1e57098 src/llama-sampler.cpp:4066-4262, with its float32 sums in its order.
// There every candidate is compared with every other; here the texts are sorted once for the
// vocabulary, so that a candidate meets only those that begin with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "sampling/candidates/candidates.h"

namespace unpaced {

// Constant once made: any thread.
class InfillVocabulary {
 public:
  // The text of every token, control tokens without; whether it ends the text; the token that
  // stands for the end. Sorts the texts: tenths of a second for 100 000, not for the decode thread.
  InfillVocabulary(std::span<const std::string_view> pieces, std::vector<std::uint8_t> ends,
                   TokenId end);

  [[nodiscard]] std::int32_t size() const noexcept {
    return static_cast<std::int32_t>(ends_.size());
  }
  [[nodiscard]] bool is_end(TokenId token) const noexcept {
    return ends_[static_cast<std::size_t>(token)] != 0;
  }
  [[nodiscard]] TokenId end() const noexcept { return end_; }
  // Position of the token in the order of the texts.
  [[nodiscard]] std::int32_t rank(TokenId token) const noexcept {
    return ranks_[static_cast<std::size_t>(token)];
  }
  // The ranks of the tokens whose text begins with this one's, itself among them; none if it has no
  // text.
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> extensions(TokenId token) const noexcept {
    return extensions_[static_cast<std::size_t>(token)];
  }

 private:
  std::vector<std::uint8_t> ends_;
  TokenId end_;
  std::vector<std::int32_t> ranks_;                                // by token
  std::vector<std::pair<std::int32_t, std::int32_t>> extensions_;  // by token: [first, second)
};

// The link of one request, with its memory. Made by the front end, used by the decode thread:
// apply() does not allocate.
class Infill {
 public:
  explicit Infill(std::shared_ptr<const InfillVocabulary> vocabulary);

  // Needs a candidate with a finite logit.
  void apply(Candidates& c) noexcept;

 private:
  void merge_extensions(Candidates& c) noexcept;
  // The positions in c of the candidates that begin with the text of number i, ascending.
  std::span<const std::int32_t> extensions_of(const Candidates& c, std::int32_t i) noexcept;
  // Drops text tokens below `threshold`; returns how many are left.
  std::int32_t keep_likely(Candidates& c, float threshold, float& sum) const noexcept;

  std::shared_ptr<const InfillVocabulary> vocabulary_;
  std::vector<std::int32_t> by_rank_;  // positions of the candidates in the order of their texts
  std::vector<std::int32_t> found_;
};

}  // namespace unpaced
