#include "request/text_limits.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

namespace unpaced {

TextLimits::TextLimits(TokenText text, std::int32_t n_indent, std::int64_t t_max_ms)
    : text_(std::move(text)),
      n_indent_(n_indent),
      t_max_us_(std::min(t_max_ms, std::numeric_limits<std::int64_t>::max() / 1000) * 1000) {}

FinishReason TextLimits::accept(TokenId token, const TextState& state) noexcept {
  if (first_token_us_ < 0) first_token_us_ = state.now_us;
  const std::string_view piece = (*text_)[token];
  for (const char c : piece) read(c);
  FinishReason reason = FinishReason::kNone;
  if (has_new_line_ && n_indent_ > 0) {
    const bool stays = short_at_ < n_bytes_ - state.n_stop_bytes;
    if (checked_line_ > 0 && checked_line_ == short_line_ && stays) {
      cut_line_ = checked_line_;
      reason = FinishReason::kIndentLimit;
    }
    if (line_ > checked_line_) ++checked_line_;
  }
  if (sends_new_line(piece, state)) {
    has_new_line_ = true;
    if (has_time_limit() && state.now_us - first_token_us_ > t_max_us_) {
      reason = FinishReason::kTimeLimit;
    }
  }
  return reason;
}

void TextLimits::read(char c) noexcept {
  if (line_ > 0 && !line_has_text_) {
    if (c == ' ' || c == '\t') {
      ++line_indent_;
    } else {
      line_has_text_ = true;
      if (line_indent_ < n_indent_ && short_line_ < 0) {
        short_line_ = line_;
        short_at_ = n_bytes_;
      }
    }
  }
  if (c == '\n') {
    if (!unsent_new_line_) unsent_new_line_ = n_bytes_;
    ++line_;
    line_indent_ = 0;
    line_has_text_ = false;
  }
  last_bytes_ = last_bytes_ << 8U | static_cast<unsigned char>(c);
  ++n_bytes_;
}

bool TextLimits::sends_new_line(std::string_view piece, const TextState& state) noexcept {
  if (state.n_stop_bytes == 0) {
    // llama-server takes the token's own text for sent and sends it again with the rest.
    if (ends_in_part_of_character()) return piece.find('\n') != std::string_view::npos;
    if (state.may_become_stop && !state.is_end) return false;
  }
  const bool sent = unsent_new_line_ && *unsent_new_line_ < n_bytes_ - state.n_stop_bytes;
  unsent_new_line_.reset();
  return sent;
}

bool TextLimits::ends_in_part_of_character() const noexcept {
  // The first byte of a character of n bytes with fewer than n - 1 after it, whatever these are.
  const std::uint32_t b = last_bytes_;
  return (b & 0xE0U) == 0xC0U || (b & 0xF0U) == 0xE0U || (b & 0xF8U) == 0xF0U ||
         (b >> 8U & 0xF0U) == 0xE0U || (b >> 8U & 0xF8U) == 0xF0U || (b >> 16U & 0xF8U) == 0xF0U;
}

}  // namespace unpaced
