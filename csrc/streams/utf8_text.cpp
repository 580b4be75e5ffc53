#include "streams/utf8_text.h"

#include <algorithm>
#include <cstddef>

namespace unpaced {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Which bytes a character has, by its first one (Unicode 15, table 3-7).
struct Form {
  std::size_t n = 0;  // 0: no character begins so
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xbf;
};

Form form_of(unsigned char first) noexcept {
  if (first < 0x80) return {.n = 1};
  if (first < 0xc2 || first > 0xf4) return {};
  if (first < 0xe0) return {.n = 2};
  if (first == 0xe0) return {.n = 3, .second_min = 0xa0};
  if (first == 0xed) return {.n = 3, .second_max = 0x9f};  // no surrogates
  if (first < 0xf0) return {.n = 3};
  if (first == 0xf0) return {.n = 4, .second_min = 0x90};
  if (first == 0xf4) return {.n = 4, .second_max = 0x8f};
  return {.n = 4};
}

}  // namespace

void take_characters(std::string& bytes, std::string& text) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
    const Form form = form_of(byte(0));
    const std::size_t n_there = std::min(form.n, bytes.size() - at);
    std::size_t n = form.n == 0 ? 0 : 1;  // bytes that fit
    while (n > 0 && n < n_there) {
      const unsigned char min = n == 1 ? form.second_min : 0x80;
      const unsigned char max = n == 1 ? form.second_max : 0xbf;
      if (byte(n) < min || byte(n) > max) break;
      ++n;
    }
    if (n > 0 && n == form.n) {
      text.append(bytes, at, n);
    } else if (n > 0 && at + n == bytes.size()) {
      break;  // it may go on
    } else {
      text += kReplacement;
      n = std::max<std::size_t>(n, 1);
    }
    at += n;
  }
  bytes.erase(0, at);
}

}  // namespace unpaced
