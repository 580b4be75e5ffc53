#include "grammar/llguidance_matcher.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

namespace unpaced {

std::string without_marks(std::string message) {
  // What stands there where the text so far would.
  if (const auto mark = message.find("<non-verbose/>"); mark != std::string::npos) {
    message.erase(mark);
  }
  while (!message.empty() && std::isspace(static_cast<unsigned char>(message.back())) != 0) {
    message.pop_back();
  }
  return message;
}

LlguidanceMatcher::LlguidanceMatcher(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      engine_(&grammar_->engine()),
      library_(engine_->library()),
      matcher_(grammar_->clone()),
      memory_(grammar_->memory()) {
  if (memory_ != nullptr) mark_ = memory_->start();
}

LlguidanceMatcher::~LlguidanceMatcher() { library_.free_matcher(matcher_); }

bool LlguidanceMatcher::allows(TokenId token) {
  // The end is not text: the library's validation does not know all of its tokens.
  if (engine_->is_eog(token)) return library_.is_accepting(matcher_);
  const auto id = static_cast<std::uint32_t>(token);
  return library_.validate_tokens(matcher_, &id, 1) == 1;
}

bool LlguidanceMatcher::has_mask() {
  return mark_.place.is_known() && memory_->find(mark_) != nullptr;
}

void LlguidanceMatcher::fill(std::span<std::uint32_t> words) {
  if (mark_.place.is_known()) {
    if (const auto kept = memory_->find(mark_)) {
      std::ranges::copy(*kept, words.begin());
      return;
    }
  }
  if (library_.compute_mask(matcher_, words.data(), words.size_bytes()) != 0) {
    std::fill(words.begin(), words.end(), 0U);
  } else if (mark_.place.is_known()) {
    memory_->keep(mark_, words);
  }
}

void LlguidanceMatcher::accept(TokenId token) {
  if (engine_->is_eog(token)) return;  // the sequence ends with it
  const auto id = static_cast<std::uint32_t>(token);
  // It leaves its error behind if that fails.
  static_cast<void>(library_.consume_tokens(matcher_, &id, 1));
  const std::string_view text = engine_->text(token);
  if (text.empty()) {
    mark_ = {};  // not text: nothing is known of where it leads
  } else if (mark_.place.is_known()) {
    mark_ = memory_->advance(mark_, text);
  }
}

void LlguidanceMatcher::accept_text(std::string_view text) {
  if (text.empty()) return;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  // At most a token a byte.
  std::vector<std::uint32_t> tokens(text.size());
  const std::size_t n = library_.tokenize_bytes(engine_->tokenizer(), bytes, text.size(),
                                                tokens.data(), tokens.size());
  tokens.resize(std::min(n, tokens.size()));
  static_cast<void>(library_.consume_tokens(matcher_, tokens.data(), tokens.size()));
  if (mark_.place.is_known()) mark_ = memory_->advance(mark_, text);
}

void LlguidanceMatcher::restart() {
  library_.free_matcher(std::exchange(matcher_, grammar_->clone()));
  if (memory_ != nullptr) mark_ = memory_->start();
}

std::string LlguidanceMatcher::failure() const {
  const char* error = library_.get_error(matcher_);
  return error == nullptr ? std::string() : without_marks(error);
}

}  // namespace unpaced
