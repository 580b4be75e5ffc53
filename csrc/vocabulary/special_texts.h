// The texts of some tokens, to find the longest one that begins at a place of another text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace unpaced {

class SpecialTexts {
 public:
  struct Match {
    std::size_t length = 0;  // bytes; 0: no text begins here
    std::int32_t token = -1;
  };

  // `text`: at least a byte.
  void add(std::string_view text, std::int32_t token);
  // Takes time in proportion to the longest text.
  [[nodiscard]] Match longest_at(std::string_view text, std::size_t at) const;

 private:
  // A tree of bytes, numbered; 0 is its root.
  [[nodiscard]] static std::uint64_t edge(std::uint32_t node, char byte) noexcept {
    return (std::uint64_t{node} << 8U) | static_cast<unsigned char>(byte);
  }

  std::array<bool, 256> begins_{};  // by first byte: most places are dismissed by it
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::unordered_map<std::uint32_t, std::int32_t> tokens_;  // by the node where their text ends
  std::uint32_t n_nodes_ = 1;
};

}  // namespace unpaced
