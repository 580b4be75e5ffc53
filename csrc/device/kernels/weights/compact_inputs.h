// A vector's words in shared memory without what neighbouring lanes have in common: a fifth to
// three eighths less of it, for one more load. For vectors that would not fit else.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/stored_inputs.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

// A format whose inputs are stored so. Lanes 4i to 4i + 3 have the words of `Input` in common that
// kCommonWords names.
template <HasQuads Plain_>
struct Compact : Plain_ {
  using Plain = Plain_;
};

// Of a step all lanes' own words, two at a time; then, once for each four lanes, the common ones.
template <class Plain>
struct StoredInputs<Compact<Plain>> {
  using Input = typename Plain::Input;
  static constexpr int kWords = Plain::kInputWords;

  struct alignas(8) Two {
    std::uint32_t words[2];
  };

  UNPACED_BOTH static constexpr bool is_common(int word) {
    return (Plain::kCommonWords >> word & 1) != 0;
  }
  // Where word and the next one lie.
  UNPACED_BOTH static constexpr int place_of(int word) {
    int at = 0;
    UNPACED_UNROLL
    for (int i = 0; i < kWords; ++i) {
      const bool before = is_common(i) == is_common(word) ? i < word : is_common(word);
      if (before) at += is_common(i) ? kLanes / kQuad : kLanes;
    }
    return 4 * at;
  }
  static constexpr int n_common() {
    int n = 0;
    for (int i = 0; i < kWords; ++i) n += is_common(i) ? 1 : 0;
    return n;
  }
  static constexpr bool is_paired() {
    for (int i = 0; i < kWords; i += 2) {
      if (is_common(i) != is_common(i + 1)) return false;
    }
    return kWords % 2 == 0;
  }
  static_assert(is_paired());
  static constexpr int kStepBytes =
      ((kWords - n_common()) * kLanes + n_common() * kLanes / kQuad) * 4;

  UNPACED_BOTH static Input load(const std::uint8_t* step, int lane) {
    std::uint32_t words[sizeof(Input) / 4] = {};
    UNPACED_UNROLL
    for (int i = 0; i < kWords; i += 2) {
      const auto* place = reinterpret_cast<const Two*>(step + place_of(i));
      const Two two = place[is_common(i) ? lane / kQuad : lane];
      words[i] = two.words[0];
      words[i + 1] = two.words[1];
    }
    Input input;
    static_assert(sizeof(Input) == sizeof words);
    std::memcpy(&input, words, sizeof input);
    return input;
  }

  UNPACED_BOTH static void store(std::uint8_t* step, int lane, const Input& input) {
    std::uint32_t words[sizeof(Input) / 4];
    std::memcpy(words, &input, sizeof input);
    UNPACED_UNROLL
    for (int i = 0; i < kWords; i += 2) {
      auto* place = reinterpret_cast<Two*>(step + place_of(i));
      if (is_common(i) && lane % kQuad != 0) continue;
      place[is_common(i) ? lane / kQuad : lane] = {{words[i], words[i + 1]}};
    }
  }
};

}  // namespace unpaced::mat_vec
