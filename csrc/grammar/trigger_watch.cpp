#include "grammar/trigger_watch.h"

#include <algorithm>
#include <utility>

#include "request/stop_strings.h"

namespace unpaced {

WatchedText::WatchedText(std::string text) : text_(std::move(text)), border_(text_.size()) {
  for (std::size_t i = 1, n = 0; i < text_.size(); ++i) {
    while (n > 0 && text_[i] != text_[n]) n = border_[n - 1];
    if (text_[i] == text_[n]) ++n;
    border_[i] = n;
  }
}

bool WatchedText::advance(char byte) noexcept {
  if (text_.empty()) return false;
  if (n_matched_ == text_.size()) n_matched_ = border_[n_matched_ - 1];
  while (n_matched_ > 0 && text_[n_matched_] != byte) n_matched_ = border_[n_matched_ - 1];
  if (text_[n_matched_] == byte) ++n_matched_;
  return n_matched_ == text_.size();
}

CompiledTriggers::CompiledTriggers(std::shared_ptr<const TokenPieces> pieces,
                                   std::vector<GrammarTrigger> triggers, QuietSpan quiet,
                                   bool may_resume, bool lists_tokens)
    : pieces_(std::move(pieces)),
      triggers_(std::move(triggers)),
      quiet_(std::move(quiet)),
      may_resume_(may_resume) {
  if (!lists_tokens) return;
  const auto n_tokens = static_cast<std::size_t>(pieces_->size());
  std::vector<std::string> words;
  std::size_t n_bytes = 0;
  for (const GrammarTrigger& trigger : triggers_) {
    if (!trigger.word.empty()) words.push_back(trigger.word);
    n_bytes += trigger.word.size();
  }
  if (n_bytes > kMaxListedBytes) {
    completing_tokens_.assign(n_tokens / 32 + 1, UINT32_MAX);
    return;
  }
  const StopStrings stops({.pieces = pieces_, .special = pieces_, .spelled_out = {}}, words);
  completing_tokens_ = stops.completing_tokens();
  for (const GrammarTrigger& trigger : triggers_) {
    if (trigger.token < 0) continue;
    const auto token = static_cast<std::size_t>(trigger.token);
    completing_tokens_[token / 32] |= 1U << token % 32;
  }
}

TriggerWatch::TriggerWatch(std::shared_ptr<const CompiledTriggers> compiled)
    : compiled_(std::move(compiled)),
      quiet_start_(compiled_->quiet().start),
      quiet_end_(compiled_->quiet().end),
      is_quiet_(compiled_->quiet().is_open) {
  for (const GrammarTrigger& trigger : compiled_->triggers()) {
    words_.emplace_back(trigger.word);
    n_recent_ = std::max(n_recent_, trigger.word.size());
  }
  recent_.reserve(n_recent_ + 1);
  tokens_.reserve(n_recent_ + 1);
}

bool TriggerWatch::accept(TokenId token) noexcept {
  text_ = {};
  tokens_.clear();
  if (!is_quiet_) {
    for (const GrammarTrigger& trigger : compiled_->triggers()) {
      if (trigger.token != token) continue;
      if (trigger.inside) tokens_.push_back(token);
      forget();
      return true;
    }
  }
  const std::string_view piece = compiled_->pieces()[token];
  const Found found = look_through(piece);
  if (found.trigger == nullptr) {
    remember(token);
    return false;
  }
  begin_with(found, token, piece);
  forget();
  return true;
}

// Of several words that end in the token the one that begins first.
TriggerWatch::Found TriggerWatch::look_through(std::string_view piece) noexcept {
  Found found;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    if (is_quiet_) {
      if (!quiet_end_.advance(piece[i])) continue;
      is_quiet_ = false;
      forget();
      continue;
    }
    for (std::size_t j = 0; j < words_.size(); ++j) {
      if (!words_[j].advance(piece[i])) continue;
      const auto begin =
          static_cast<std::ptrdiff_t>(i + 1) - static_cast<std::ptrdiff_t>(words_[j].size());
      if (found.trigger != nullptr && begin >= found.begin) continue;
      found = {.trigger = &compiled_->triggers()[j], .begin = begin, .end = i + 1};
    }
    if (found.trigger == nullptr && quiet_start_.advance(piece[i])) {
      is_quiet_ = true;
      quiet_end_.reset();
    }
  }
  return found;
}

void TriggerWatch::begin_with(const Found& found, TokenId token, std::string_view piece) noexcept {
  if (!found.trigger->inside) {
    text_ = piece.substr(found.end);
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
    return;
  }
  // The tokens as they came, but for the one that the word begins within.
  std::ptrdiff_t begin = found.begin;
  std::size_t n_before = 0;
  while (begin < 0 && n_before < recent_.size()) {
    ++n_before;
    const TokenId earlier = recent_[recent_.size() - n_before];
    begin += static_cast<std::ptrdiff_t>(compiled_->pieces()[earlier].size());
  }
  tokens_.assign(recent_.end() - static_cast<std::ptrdiff_t>(n_before), recent_.end());
  tokens_.push_back(token);
  if (begin > 0) {
    text_ = compiled_->pieces()[tokens_.front()].substr(static_cast<std::size_t>(begin));
    tokens_.erase(tokens_.begin());
  }
}

void TriggerWatch::remember(TokenId token) noexcept {
  if (is_quiet_ || n_recent_ == 0 || compiled_->pieces()[token].empty()) return;
  if (recent_.size() == n_recent_) recent_.erase(recent_.begin());
  recent_.push_back(token);
}

void TriggerWatch::forget() noexcept {
  recent_.clear();
  for (WatchedText& word : words_) word.reset();
  quiet_start_.reset();
}

}  // namespace unpaced
