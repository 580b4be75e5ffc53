#include "vocabulary/chat_format.h"

#include <llama.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

namespace unpaced {

std::vector<std::string> builtin_chat_templates() {
  const std::int32_t n = llama_chat_builtin_templates(nullptr, 0);
  std::vector<const char*> names(static_cast<std::size_t>(n));
  llama_chat_builtin_templates(names.data(), names.size());
  return {names.begin(), names.end()};
}

std::string format_chat(const std::string& chat_template, const std::vector<ChatMessage>& messages,
                        bool add_generation_prompt) {
  std::vector<llama_chat_message> chat;
  std::size_t n_bytes = 1024;
  for (const ChatMessage& message : messages) {
    chat.push_back({.role = message.role.c_str(), .content = message.content.c_str()});
    n_bytes += 2 * (message.role.size() + message.content.size());
  }
  if (n_bytes > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw std::invalid_argument("the messages are longer than 2^30 - 1 bytes");
  }
  std::string prompt(n_bytes, '\0');
  for (;;) {
    const std::int32_t n = llama_chat_apply_template(
        chat_template.c_str(), chat.data(), chat.size(), add_generation_prompt, prompt.data(),
        static_cast<std::int32_t>(prompt.size()));
    if (n < 0) {
      throw std::invalid_argument("this template is none of llama.cpp's built-in ones");
    }
    const bool is_whole = static_cast<std::size_t>(n) <= prompt.size();
    prompt.resize(static_cast<std::size_t>(n));
    if (is_whole) return prompt;
  }
}

}  // namespace unpaced
