// Where a text may be cut so that the parts' tokens, one after the other, are those of the whole.
//
// llama.cpp cuts a text at its special tokens, the longest token first, in a list that it walks
// from the front at every find: its time grows with the square of their number. It does nothing
// across such a cut. So a text may be cut beforehand at an occurrence that is certain to be found:
// no other that overlaps it is longer, is as long (which of them wins is llama.cpp's secret), or is
// the same token and begins earlier.
#pragma once

#include <llama.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "vocabulary/special_texts.h"

namespace unpaced {

class SpecialCuts {
 public:
  // Reads the whole vocabulary. parse_special: as for llama_tokenize.
  SpecialCuts(const llama_vocab* vocab, bool parse_special);

  // A part of a text. n_special: places where the text of a special token begins.
  struct Part {
    std::string_view text;
    std::size_t n_special = 0;
  };
  // All of `text`, in order. Takes time in proportion to it. A part ends at the first place for a
  // cut at or after `n_bytes` bytes.
  [[nodiscard]] std::vector<Part> parts(std::string_view text, std::size_t n_bytes) const;

 private:
  enum class Side : std::uint8_t { kBefore, kAfter };

  SpecialTexts texts_;
  std::unordered_map<std::int32_t, Side> sides_;  // of the tokens at which a text may be cut
};

}  // namespace unpaced
