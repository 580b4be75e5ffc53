// Ends of one request's text besides its stop strings: a line that is indented too little, and a
// time limit that acts with a new line.
//
// The rules are llama-server's (llama.cpp 0c1e57098 tools/server/server-context.cpp:1820-1931) with
// their delays: nothing counts as a new line before it may be sent, which an incomplete character
// or what may become a stop string prevents; the first line is never looked at; and each token lets
// the check move on by one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "request/records.h"
#include "request/stop_strings.h"

namespace unpaced {

// What else is known of the text after a token.
struct TextState {
  std::size_t n_stop_bytes = 0;  // from the beginning of a stop string to the end; 0: there is none
  bool may_become_stop = false;  // the text ends in the beginning of a stop string
  bool is_end = false;           // the token ends the text, whatever it holds
  std::int64_t now_us = 0;       // steady clock; only read where has_time_limit()
};

// Made by the front end, used by the decode thread: accept() does not allocate.
class TextLimits {
 public:
  TextLimits() = default;  // no limits
  // n_indent: spaces and tabs that every line but the first begins with, 0: no limit; t_max_ms: of
  // the time since the first token, below 1: no limit.
  TextLimits(TokenText text, std::int32_t n_indent, std::int64_t t_max_ms);

  [[nodiscard]] bool empty() const noexcept { return !text_.has_value(); }
  [[nodiscard]] bool has_time_limit() const noexcept { return t_max_us_ > 0; }

  // One more token of the answer. kIndentLimit, kTimeLimit: it is the last one; kNone: it is not.
  [[nodiscard]] FinishReason accept(TokenId token, const TextState& state) noexcept;

  // The line, counted from 0, that is not part of the text but for its indentation; -1: none.
  [[nodiscard]] std::int32_t cut_line() const noexcept { return cut_line_; }

 private:
  void read(char c) noexcept;
  // True if what the token lets be sent holds a new line.
  [[nodiscard]] bool sends_new_line(std::string_view piece, const TextState& state) noexcept;
  [[nodiscard]] bool ends_in_part_of_character() const noexcept;

  std::optional<TokenText> text_;
  std::int32_t n_indent_ = 0;
  std::int64_t t_max_us_ = 0;
  std::int64_t first_token_us_ = -1;
  std::uint32_t last_bytes_ = 0;  // the newest lowest
  std::size_t n_bytes_ = 0;
  // The newest line.
  std::int32_t line_ = 0;
  std::int32_t line_indent_ = 0;
  bool line_has_text_ = false;
  // The first line beyond line 0 with too little before its text, and where that text begins.
  std::int32_t short_line_ = -1;
  std::size_t short_at_ = 0;
  std::int32_t checked_line_ = 0;
  std::optional<std::size_t> unsent_new_line_;  // position of the first one not yet sent
  bool has_new_line_ = false;
  std::int32_t cut_line_ = -1;
};

}  // namespace unpaced
