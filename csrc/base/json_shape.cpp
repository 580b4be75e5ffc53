#include "base/json_shape.h"

#include <algorithm>

namespace unpaced {
namespace {

bool begins_number(char c) noexcept { return c == '-' || (c >= '0' && c <= '9'); }

// The place after a number, or after what looks like one, that begins before `at`.
std::size_t end_of_number(std::string_view text, std::size_t at) noexcept {
  const std::size_t end = text.find_first_not_of("0123456789+-.eE", at);
  return end == std::string_view::npos ? text.size() : end;
}

// The place after a string that begins before `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) noexcept {
  while ((at = text.find_first_of("\"\\", at)) != std::string_view::npos) {
    if (text[at] == '"') return at + 1;
    at += 2;  // what is escaped ends nothing
  }
  return text.size();
}

}  // namespace

JsonShape json_shape(std::string_view text) noexcept {
  JsonShape shape;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at++];
    if (c == '"') {
      ++shape.n_values;
      at = end_of_string(text, at);
    } else if (c == '[' || c == '{') {
      ++shape.n_values;
      shape.depth = std::max(shape.depth, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    } else if (begins_number(c)) {
      ++shape.n_numbers;
      at = end_of_number(text, at);
    } else if (c == 'n' || c == 't' || c == 'f') {
      ++shape.n_values;  // null, true, false
    }
  }
  return shape;
}

}  // namespace unpaced
