#include "json_shape.h"

#include <algorithm>

namespace unpaced {
namespace {

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
    } else if (c == 'n' || c == 't' || c == 'f') {
      ++shape.n_values;  // null, true, false
    }
  }
  return shape;
}

}  // namespace unpaced
