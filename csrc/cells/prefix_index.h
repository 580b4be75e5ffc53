// Which sequences hold which prefix, and which of them hold it in the same cells.
//
// It is a radix tree in its flattest form: of each two sequences the number of first cells that
// they have in common, which is where their branches part. There are 256 sequences at most
// (llama.cpp's limit), a token that a sequence gets changes nothing, and no memory is taken but
// in the constructor. The tokens stay where they are: who looks for a prefix brings them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"

namespace unpaced {

inline constexpr std::size_t kSequencesMax = 256;  // LLAMA_MAX_SEQ

// Decode thread only.
class PrefixIndex {
 public:
  explicit PrefixIndex(std::int32_t n_sequences);

  // The first n cells of `from` are those of `to` as well, which holds no others.
  void share(std::int32_t from, std::int32_t to, std::int32_t n) noexcept;
  // Of the sequence's cells none from the n-th on are another one's as well.
  void cut(std::int32_t sequence, std::int32_t n) noexcept;
  void clear() noexcept;

  // First cells that both have.
  [[nodiscard]] std::int32_t n_common(std::int32_t a, std::int32_t b) const noexcept {
    return common_[index_of(a, b)];
  }
  // First cells of the sequence that any other one has, too.
  [[nodiscard]] std::int32_t n_shared(std::int32_t sequence) const noexcept;
  // Some sequences have cells in common.
  [[nodiscard]] bool is_shared() const noexcept { return n_pairs_ > 0; }
  // Another number after every change.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }

  // A sequence and its first cells.
  struct Held {
    std::int32_t sequence = 0;
    std::int32_t n = 0;
  };
  // Cells of all of them, each counted once.
  [[nodiscard]] std::int32_t n_distinct(std::span<const Held> all) const noexcept;

  // A sequence and the tokens of its cells, those behind them that it will have, too; -1: one whose
  // cells are not there yet.
  struct Holder {
    std::int32_t sequence = 0;
    std::span<const TokenId> tokens;
    std::int32_t n_match = 0;  // result: first tokens of the prompt
  };
  // Cells in common are looked at once: it takes time for the prompt's tokens and for those that
  // several sequences hold in cells of their own.
  void match(std::span<const TokenId> prompt, std::span<Holder> holders) const noexcept;

 private:
  [[nodiscard]] std::size_t index_of(std::int32_t a, std::int32_t b) const noexcept {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(n_) + static_cast<std::size_t>(b);
  }
  void set(std::int32_t a, std::int32_t b, std::int32_t n) noexcept;

  const std::int32_t n_;
  std::vector<std::int32_t> common_;  // by both sequences, both ways
  std::int32_t n_pairs_ = 0;          // that have cells in common
  std::uint64_t version_ = 0;
};

}  // namespace unpaced
