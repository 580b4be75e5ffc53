// A vector's words in shared memory, as the lanes of a step read them.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// Of a step all lanes' first four words, their next four, and
// what is left as two and one, so that a warp reads each without conflict.
template <class Format>
struct StoredInputs {
  using Input = typename Format::Input;
  static constexpr int kWords = Format::kInputWords;
  static constexpr int kStepBytes = kWords * 4 * kLanes;

  struct alignas(16) Four {
    std::uint32_t words[4];
  };
  struct alignas(8) Two {
    std::uint32_t words[2];
  };

  UNPACED_BOTH static Input load(const std::uint8_t* step, int lane) {
    std::uint32_t words[sizeof(Input) / 4] = {};
    constexpr int kFours = kWords / 4;
    UNPACED_UNROLL
    for (int i = 0; i < kFours; ++i) {
      const Four four = reinterpret_cast<const Four*>(step)[i * kLanes + lane];
      UNPACED_UNROLL
      for (int j = 0; j < 4; ++j) words[4 * i + j] = four.words[j];
    }
    const std::uint8_t* rest = step + kFours * 16 * kLanes;
    if constexpr ((kWords & 2) != 0) {
      const Two two = reinterpret_cast<const Two*>(rest)[lane];
      words[4 * kFours] = two.words[0];
      words[4 * kFours + 1] = two.words[1];
      rest += 8 * kLanes;
    }
    if constexpr ((kWords & 1) != 0)
      words[kWords - 1] = reinterpret_cast<const std::uint32_t*>(rest)[lane];
    Input input;
    static_assert(sizeof(Input) == sizeof words);
    std::memcpy(&input, words, sizeof input);
    return input;
  }

  UNPACED_BOTH static void store(std::uint8_t* step, int lane, const Input& input) {
    std::uint32_t words[sizeof(Input) / 4];
    std::memcpy(words, &input, sizeof input);
    constexpr int kFours = kWords / 4;
    UNPACED_UNROLL
    for (int i = 0; i < kFours; ++i) {
      Four four;
      UNPACED_UNROLL
      for (int j = 0; j < 4; ++j) four.words[j] = words[4 * i + j];
      reinterpret_cast<Four*>(step)[i * kLanes + lane] = four;
    }
    std::uint8_t* rest = step + kFours * 16 * kLanes;
    if constexpr ((kWords & 2) != 0) {
      reinterpret_cast<Two*>(rest)[lane] = {{words[4 * kFours], words[4 * kFours + 1]}};
      rest += 8 * kLanes;
    }
    if constexpr ((kWords & 1) != 0)
      reinterpret_cast<std::uint32_t*>(rest)[lane] = words[kWords - 1];
  }
};

}  // namespace unpaced::mat_vec
