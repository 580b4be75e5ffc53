// The frames of a stream whose events hold its tokens' text and numbers, and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/token.h"
#include "bindings/python.h"

namespace unpaced {

// What stands between two literals of a frame. engine_ext/sequence/token_frames.py mirrors it.
enum class FrameField : std::uint8_t {
  kText = 0,  // what the token made final, a JSON string
  kToken,     // its id
  kNumber,    // tokens decoded so far, this one included
};

// Where a sequence stands when its tokens begin, or cease, to be written here.
struct SequenceState {
  std::string partial;         // the beginning of a UTF-8 sequence, which the last token ended in
  std::int32_t n_decoded = 0;  // tokens
  std::int64_t last_us = 0;    // when the last one was decoded, steady clock
  bool has_new_line = false;
};

// A token costs no Python object and no line of Python. Event loop's thread, with the GIL.
class TokenFrames {
 public:
  // `pieces`: every token's bytes by id. `parts`: literals, and fields as their numbers.
  // `skips_empty`: a token that makes no text final has no frame. `keeps_text`: see take_text().
  // `gaps`: counts the seconds between tokens.
  TokenFrames(nb::list pieces, const nb::list& parts, bool skips_empty, bool keeps_text,
              SequenceState state, std::shared_ptr<Histogram> gaps);

  // Throws nb::index_error for a token that has no piece.
  void add(TokenId token, std::int32_t n_decoded, std::int64_t t_us);

  [[nodiscard]] bool empty() const noexcept { return frames_.empty(); }
  // The frames that have come since the last time.
  nb::bytes take();
  // The same as one chunk of an HTTP body in chunked coding; b"" if there are none.
  nb::bytes take_chunk();
  // Their text, if it is kept.
  nb::bytes take_text();
  [[nodiscard]] const SequenceState& state() const noexcept { return state_; }
  // When the token of the newest frame was decoded, or the last one before all frames.
  [[nodiscard]] std::int64_t written_us() const noexcept { return written_us_; }

 private:
  struct Part {
    std::string literal;
    FrameField field;
  };

  // What the token makes final: whole characters, and U+FFFD for what is none.
  [[nodiscard]] std::string_view push(std::string_view piece);

  const nb::list pieces_;
  std::vector<Part> parts_;
  std::string end_;  // the last literal
  const bool skips_empty_;
  const bool keeps_text_;
  const std::shared_ptr<Histogram> gaps_;
  SequenceState state_;
  nb::object decoded_;  // owns the text of the last push()
  std::string frames_;
  std::int64_t written_us_;
  std::string text_;
};

}  // namespace unpaced
