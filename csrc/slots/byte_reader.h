// Reads forward through bytes of unknown origin; a read beyond the end gives zeros and is
// remembered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace unpaced {

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  template <class T>
  T read() noexcept {
    T value{};
    if (const auto bytes = skip(sizeof(T)); !bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }
  std::span<const std::byte> skip(std::uint64_t n) noexcept {
    if (n > bytes_.size() - at_) {
      is_over_ = true;
      return {};
    }
    const auto bytes = bytes_.subspan(at_, static_cast<std::size_t>(n));
    at_ += bytes.size();
    return bytes;
  }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_;
  bool is_over_ = false;
};

}  // namespace unpaced
