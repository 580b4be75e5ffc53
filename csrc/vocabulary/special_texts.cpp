#include "vocabulary/special_texts.h"

namespace unpaced {

void SpecialTexts::add(std::string_view text, std::int32_t token) {
  begins_[static_cast<unsigned char>(text.front())] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [it, is_new] = edges_.try_emplace(edge(node, byte), n_nodes_);
    if (is_new) ++n_nodes_;
    node = it->second;
  }
  tokens_[node] = token;
}

SpecialTexts::Match SpecialTexts::longest_at(std::string_view text, std::size_t at) const {
  Match found;
  if (!begins_[static_cast<unsigned char>(text[at])]) return found;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    if (const auto token = tokens_.find(node); token != tokens_.end()) {
      found = {.length = i + 1 - at, .token = token->second};
    }
  }
  return found;
}

}  // namespace unpaced
