// A record whose every byte follows from its number, so that a torn, lost, repeated or reordered
// one shows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unpaced::test {

struct alignas(64) NumberedRecord {
  static constexpr std::size_t kWords = 8;
  std::uint64_t word[kWords];

  static NumberedRecord of(std::uint64_t number) noexcept {
    NumberedRecord record;
    for (std::size_t i = 0; i < kWords; ++i) record.word[i] = mix(number, i);
    return record;
  }

  [[nodiscard]] bool is(std::uint64_t number) const noexcept {
    for (std::size_t i = 0; i < kWords; ++i) {
      if (word[i] != mix(number, i)) return false;
    }
    return true;
  }

 private:
  static std::uint64_t mix(std::uint64_t number, std::uint64_t i) noexcept {
    return number ^
           (i * 0x9E3779B97F4A7C15ULL);  // 2^64 / golden ratio: distinct high bits per word
  }
};

}  // namespace unpaced::test
