// Four of ggml's neighbouring threads as one lane's work. They share a block of weights, its scales
// and most of what unpacking takes, so a lane that does their work takes half of the instructions
// of four that do a thread's each, and reads 16 bytes at a time.
//
// 32 lanes are then all of ggml's 128 threads (four warps): lane p has threads 4p ... 4p + 3, warp
// p / 8's, and a sum for each of the four. A step is what all of them meet, one turn of ggml's
// loop.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/kernels/weights/pinned_float.h"
#include "device/kernels/weights/stored_inputs.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

inline constexpr int kQuad = 4;

// A format whose threads can be taken in fours: `load_quad` makes the weights of thread 4 * part
// and the next three, and `kCommonWords` names the words of `Input` that the four have in common.
template <class Format>
concept HasQuads = requires(const std::uint8_t* block, typename Format::Weights (&weights)[kQuad]) {
  Format::load_quad(block, 0, weights);
  Format::kCommonWords;
};

template <class Single_>
struct Quad {
  using Single = Single_;
  using Source = typename Single::Source;
  static constexpr int kValues = Single::kValues;
  static constexpr int kSources = Single::kSources;
  static constexpr int kBytes = Single::kBytes;
  static constexpr int kAlignment = Single::kAlignment;
  static constexpr bool kIsQuantised = true;
  static constexpr int kThreads = Single::kThreads / kQuad;  // lanes that share a block

  struct Input {
    typename Single::Input of[kQuad];
  };
  struct Weights {
    typename Single::Weights of[kQuad];
  };

  static constexpr int n_common_words() {
    int n = 0;
    for (int i = 0; i < Single::kInputWords; ++i) n += Single::kCommonWords >> i & 1;
    return n;
  }
  // What a lane's inputs take in shared memory.
  static constexpr int kInputWords =
      kQuad * (Single::kInputWords - n_common_words()) + n_common_words();

  UNPACED_BOTH static Input gather(const Source* blocks, int part) {
    Input input;
    UNPACED_UNROLL
    for (int i = 0; i < kQuad; ++i) input.of[i] = Single::gather(blocks, kQuad * part + i);
    return input;
  }
  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    Single::load_quad(block, part, weights.of);
    return weights;
  }
};

template <class Format>
inline constexpr bool kIsQuad = false;
template <class Single>
inline constexpr bool kIsQuad<Quad<Single>> = true;

// Words that differ first, those of the four side by side; then the common ones.
template <class Single>
struct StoredInputs<Quad<Single>> {
  using Input = typename Quad<Single>::Input;
  static constexpr int kWords = Single::kInputWords;
  static constexpr int kStepBytes = Quad<Single>::kInputWords * 4 * kLanes;

  struct alignas(16) Four {
    std::uint32_t words[kQuad];
  };

  UNPACED_BOTH static constexpr bool is_common(int word) {
    return (Single::kCommonWords >> word & 1) != 0;
  }
  // Where a word's place begins.
  UNPACED_BOTH static constexpr int place_of(int word) {
    int at = 0;
    for (int i = 0; i < kWords; ++i) {
      const bool before = is_common(i) == is_common(word) ? i < word : is_common(word);
      if (before) at += (is_common(i) ? 4 : 16) * kLanes;
    }
    return at;
  }

  UNPACED_BOTH static Input load(const std::uint8_t* step, int lane) {
    std::uint32_t words[kQuad][sizeof(typename Single::Input) / 4] = {};
    UNPACED_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const std::uint8_t* place = step + place_of(w);
      if (is_common(w)) {
        const std::uint32_t word = reinterpret_cast<const std::uint32_t*>(place)[lane];
        UNPACED_UNROLL
        for (int i = 0; i < kQuad; ++i) words[i][w] = word;
      } else {
        const Four four = reinterpret_cast<const Four*>(place)[lane];
        UNPACED_UNROLL
        for (int i = 0; i < kQuad; ++i) words[i][w] = four.words[i];
      }
    }
    Input input;
    static_assert(sizeof(Input) == sizeof words);
    std::memcpy(&input, words, sizeof input);
    return input;
  }

  // The inputs of one of the four.
  UNPACED_BOTH static void store_one(std::uint8_t* step, int lane, int one,
                                     const typename Single::Input& input) {
    std::uint32_t words[sizeof(input) / 4];
    std::memcpy(words, &input, sizeof input);
    UNPACED_UNROLL
    for (int w = 0; w < kWords; ++w) {
      std::uint8_t* place = step + place_of(w);
      if (!is_common(w))
        reinterpret_cast<Four*>(place)[lane].words[one] = words[w];
      else if (one == 0)
        reinterpret_cast<std::uint32_t*>(place)[lane] = words[w];
    }
  }
};

}  // namespace unpaced::mat_vec
