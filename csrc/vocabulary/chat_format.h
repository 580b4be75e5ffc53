// llama.cpp's built-in chat templates: code, not Jinja.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace unpaced {

struct ChatMessage {
  std::string role;
  std::string content;
};

// The names that format_chat() knows.
[[nodiscard]] std::vector<std::string> builtin_chat_templates();

// The prompt of a conversation. `chat_template`: a name, or Jinja text that llama.cpp recognises.
// Throws std::invalid_argument if it knows no such template.
[[nodiscard]] std::string format_chat(const std::string& chat_template,
                                      const std::vector<ChatMessage>& messages,
                                      bool add_generation_prompt);

}  // namespace unpaced
