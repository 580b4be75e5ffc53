#include "llguidance_matcher.h"

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
      matcher_(grammar_->clone()) {}

LlguidanceMatcher::~LlguidanceMatcher() { library_.free_matcher(matcher_); }

bool LlguidanceMatcher::allows(TokenId token) {
  // The end is not text: the library's validation does not know all of its tokens.
  if (engine_->is_eog(token)) return library_.is_accepting(matcher_);
  const auto id = static_cast<std::uint32_t>(token);
  return library_.validate_tokens(matcher_, &id, 1) == 1;
}

void LlguidanceMatcher::fill(std::span<std::uint32_t> words) {
  if (library_.compute_mask(matcher_, words.data(), words.size_bytes()) != 0) {
    std::fill(words.begin(), words.end(), 0U);
  }
}

void LlguidanceMatcher::accept(TokenId token) {
  if (engine_->is_eog(token)) return;  // the sequence ends with it
  const auto id = static_cast<std::uint32_t>(token);
  // It leaves its error behind if that fails.
  static_cast<void>(library_.consume_tokens(matcher_, &id, 1));
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
}

void LlguidanceMatcher::restart() {
  library_.free_matcher(std::exchange(matcher_, grammar_->clone()));
}

std::string LlguidanceMatcher::failure() const {
  const char* error = library_.get_error(matcher_);
  return error == nullptr ? std::string() : without_marks(error);
}

}  // namespace unpaced
