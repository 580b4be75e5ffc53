// Text as it stands in JSON.
#pragma once

#include <string>
#include <string_view>

namespace unpaced {

// Appends `text`, which is UTF-8, in quotes. The same bytes as orjson's, so that a stream does not
// change its spelling when another writer takes over.
inline void append_json(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && character != '"' && character != '\\') {
      out += character;
      continue;
    }
    out += '\\';
    switch (character) {
      case '"':
      case '\\':
        out += character;
        break;
      case '\b':
        out += 'b';
        break;
      case '\t':
        out += 't';
        break;
      case '\n':
        out += 'n';
        break;
      case '\f':
        out += 'f';
        break;
      case '\r':
        out += 'r';
        break;
      default:
        out += "u00";
        out += kHex[byte >> 4U];
        out += kHex[byte & 15U];
    }
  }
  out += '"';
}

}  // namespace unpaced
