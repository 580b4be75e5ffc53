#include "request/reasoning_budget.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>

namespace unpaced {
namespace {

// False if the bytes end within a character. Only the end counts: a piece may begin within one.
bool is_whole_utf8(std::string_view text) noexcept {
  const std::size_t n_looked_at = std::min<std::size_t>(4, text.size());
  for (std::size_t i = 1; i <= n_looked_at; ++i) {
    const auto byte = static_cast<unsigned char>(text[text.size() - i]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const std::size_t n_bytes = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
    return i >= n_bytes;
  }
  return text.empty();
}

}  // namespace

ReasoningBudget::ReasoningBudget(CompiledBudget compiled, std::shared_ptr<const TokenPieces> pieces)
    : compiled_(std::move(compiled)),
      pieces_(std::move(pieces)),
      starts_(compiled_.starts),
      ends_(compiled_.ends),
      mask_((static_cast<std::size_t>(pieces_->size()) + 31) / 32, 0) {}

void ReasoningBudget::accept_prompt(TokenId token) noexcept {
  if (state_ != State::kForcing) {
    accept(token);
    return;
  }
  const std::int32_t end = ends_.advance(token);
  if (end < 0) return;
  state_ = State::kDone;
  end_tag_ = end;
}

TokenId ReasoningBudget::forced() noexcept {
  // Looked at first, so that a token costs no read-modify-write.
  if (end_asked_.load(std::memory_order_relaxed)) {
    end_asked_.store(false, std::memory_order_relaxed);
    if (state_ == State::kCounting) begin_forcing();
  }
  if (state_ != State::kForcing) return -1;
  const TokenId token = compiled_.forced[n_forced_];
  if (token != masked_token_) {
    if (masked_token_ >= 0) mask_[static_cast<std::size_t>(masked_token_) / 32] = 0;
    mask_[static_cast<std::size_t>(token) / 32] = 1U << (static_cast<std::uint32_t>(token) % 32);
    masked_token_ = token;
  }
  return token;
}

void ReasoningBudget::accept(TokenId token) noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kDone:
      if (starts_.advance(token) >= 0) begin_reasoning();
      break;
    case State::kCounting:
    case State::kWaitingUtf8:
      count(token);
      break;
    case State::kForcing: {
      const std::int32_t end = ends_.advance(token);
      ++n_forced_;
      if (n_forced_ < compiled_.forced.size()) break;
      state_ = State::kDone;
      end_tag_ = end;
      break;
    }
  }
}

std::span<const TokenId> ReasoningBudget::end_tag() const noexcept {
  if (end_tag_ < 0) return {};
  return ends_.at(end_tag_);
}

void ReasoningBudget::begin_reasoning() noexcept {
  state_ = State::kCounting;
  n_left_ = compiled_.n_tokens < 0 ? std::numeric_limits<std::int32_t>::max() : compiled_.n_tokens;
  ends_.reset();
  end_tag_ = -1;
  if (n_left_ == 0) begin_forcing();
}

void ReasoningBudget::begin_forcing() noexcept {
  state_ = State::kForcing;
  n_forced_ = 0;
  ends_.reset();
}

void ReasoningBudget::count(TokenId token) noexcept {
  const std::int32_t end = ends_.advance(token);
  if (end >= 0) {
    state_ = State::kDone;
    end_tag_ = end;
    return;
  }
  const bool is_whole = is_whole_utf8((*pieces_)[token]);
  if (state_ == State::kCounting) {
    if (--n_left_ > 0) return;
    if (!is_whole) {
      state_ = State::kWaitingUtf8;
      ends_.reset();
      return;
    }
  } else if (!is_whole) {
    return;
  }
  begin_forcing();
}

}  // namespace unpaced
