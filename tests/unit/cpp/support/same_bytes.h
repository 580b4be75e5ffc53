// Whether two states are the same, in one call: a sanitizer looks at a loop byte by byte.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace unpaced::test {

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace unpaced::test
