// Q4_K, Q5_K and Q6_K: what one of ggml's threads does with its part of a block of 256 weights
// (vecdotq.cuh: vec_dot_q4_K_q8_1, vec_dot_q5_K_q8_1, vec_dot_q6_K_q8_1).
//
// A format has: the block's values and bytes, how many of ggml's threads share it, the input's
// words that a thread needs of a block (`Input`, made of blocks of q8_1 by `gather`), a thread's
// weights
// (`Weights`, made of the block's bytes by `load`), `add`, which is one turn of ggml's loop, and
// `finished`, which makes a thread's sum of it.
// What `load` and `gather` compute is exact; each rounding of ggml's is in `add`, in its order.
#pragma once

#include <cstdint>

#include "device/kernels/q8_row.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

// Word `i` of a q8_1 block's 32 bytes, and its scale.
UNPACED_BOTH std::uint32_t q8_word(const Q8Block* block, int i) {
  return load_aligned<std::uint32_t>(reinterpret_cast<const std::uint8_t*>(block->values) + 4 * i);
}
UNPACED_BOTH float q8_scale(const Q8Block* block) { return half_value(block->scale_and_sum); }

// Inputs quantised to q8_1: so many of its blocks for one of the weights'.
template <int kWeights>
struct Q8Inputs {
  using Source = Q8Block;
  static constexpr int kValues = kWeights;
  static constexpr int kSources = kWeights / kQ8Values;
  static constexpr bool kIsQuantised = true;

  UNPACED_BOTH static float finished(float sum) { return sum; }
};

// Two groups of 32 weights with a scale and a minimum each, of 8 inputs each: Q4_K and Q5_K. The
// second group's weights are 2^kSecond times too large: so they need not be moved.
template <int kSecond>
struct TwoGroups : Q8Inputs<256> {
  // The inputs' words; their scale d; d * (their sum), which is exact: 11 bits times 11.
  struct Input {
    std::uint32_t words[4];
    float scales[2];
    float sums[2];
  };
  static constexpr int kInputWords = 8;
  static constexpr std::uint32_t kCommonWords = 0x30;  // the scales (lane_quads.h)

  struct Weights {
    std::uint32_t words[4];  // weights of a byte, without a sign
    Factor scales[2];
    float minima[2];
    float scale, minimum;  // of the block
  };

  // `part` is thread 0 … 15 of the block: its groups are part / 4 * 2 and the next one, and its
  // words of a group are part % 4 and 4 further on.
  UNPACED_BOTH static Input gather(const Q8Block* blocks, int part) {
    Input input;
    const Q8Block* first = blocks + part / 4 * 2;
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      input.words[2 * i] = q8_word(first + i, part % 4);
      input.words[2 * i + 1] = q8_word(first + i, part % 4 + 4);
      input.scales[i] = q8_scale(first + i);
      const std::int32_t bytes = byte_dot(0x01010101U, input.words[2 * i + 1],
                                          byte_dot(0x01010101U, input.words[2 * i], kBias));
      input.sums[i] = product(input.scales[i], unbiased(bytes));
    }
    return input;
  }

  // Groups 2 * pair's and the next one's scales, then their minima, as the bytes of one word. A
  // block begins with two F16 numbers and twelve bytes of six-bit scales and minima: groups 0 to 3
  // have all six bits in a byte; groups 4 to 7 have four in the last four bytes, and two above
  // those of groups 0 to 3.
  UNPACED_BOTH static std::uint32_t scale_bytes(const std::uint32_t (&header)[4], int pair) {
    const bool split = pair >= 2;
    const std::uint32_t whole =
        chosen_bytes(header[1], header[2], (pair & 1) != 0 ? 0x7632 : 0x5410);
    const std::uint32_t rest = chosen_bytes(header[3], 0, (pair & 1) != 0 ? 0x3232 : 0x1010);
    const std::uint32_t fours = (rest & 0xffffU) | ((rest >> 4) & 0xffff0000U);
    return (whole & (split ? 0 : 0x3f3f3f3fU)) | (fours & (split ? 0x0f0f0f0fU : 0)) |
           ((whole >> 2) & (split ? 0x30303030U : 0));
  }

  // The same two scales, or their minima, as the halves of a word.
  UNPACED_BOTH static std::uint32_t scale_halves(const std::uint32_t (&header)[4], int pair,
                                                 bool minima) {
    const bool split = pair >= 2;
    const std::uint32_t from = (pair & 1) != 0 ? 0x4342 : 0x4140;
    const std::uint32_t whole = chosen_bytes(minima ? header[2] : header[1], 0, from);
    const std::uint32_t fours = chosen_bytes(header[3], 0, from) >> (minima ? 4 : 0);
    return (whole & (split ? 0 : 0x003f003fU)) | (fours & (split ? 0x000f000fU : 0)) |
           ((whole >> 2) & (split ? 0x00300030U : 0));
  }

  UNPACED_BOTH static void load_scales(const std::uint8_t* block, int part, Weights& weights) {
    std::uint32_t header[4];
    load_four_words(block, header);
    weights.scale = half_value(header[0] & 0xffffU);
    weights.minimum = half_value(header[0] >> 16);
    const std::uint32_t bytes = scale_bytes(header, part / 4);
    weights.scales[0] = factor_of(byte_value<0>(bytes));
    weights.scales[1] = factor_of(byte_value<1, -kSecond>(bytes));
    weights.minima[0] = byte_value<2>(bytes);
    weights.minima[1] = byte_value<3>(bytes);
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    float scaled_sum = 0;
    float minimum_sum = 0;
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::int32_t dot =
          unsigned_dot(weights.words[2 * i + 1], input.words[2 * i + 1],
                       unsigned_dot(weights.words[2 * i], input.words[2 * i], kBias));
      scaled_sum = fused(input.scales[i], scaled(dot, weights.scales[i]), scaled_sum);
      minimum_sum = fused(input.sums[i], weights.minima[i], minimum_sum);
    }
    const float subtracted = product(minimum_sum, weights.minimum);
    return sum(before, fused(scaled_sum, weights.scale, -subtracted));
  }

 protected:
  // Threads 4 * pair and the next three have the same scales.
  UNPACED_BOTH static void load_common_scales(const std::uint8_t* block, int pair,
                                              Weights (&weights)[4]) {
    load_scales(block, 4 * pair, weights[0]);
    UNPACED_UNROLL
    for (int k = 1; k < 4; ++k) weights[k] = weights[0];
  }
};

struct Q4K : TwoGroups<4> {
  static constexpr int kBytes = 144;
  static constexpr int kThreads = 16;
  static constexpr int kAlignment = 16;

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    load_scales(block, part, weights);
    const std::uint8_t* words = block + 16 + 32 * (part / 4) + 4 * (part % 4);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto word = load_aligned<std::uint32_t>(words + 16 * i);
      weights.words[i] = word & 0x0f0f0f0fU;
      weights.words[2 + i] = word & 0xf0f0f0f0U;
    }
    return weights;
  }

  // Of threads 4 * pair and the next three.
  UNPACED_BOTH static void load_quad(const std::uint8_t* block, int pair, Weights (&weights)[4]) {
    load_common_scales(block, pair, weights);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      std::uint32_t words[4];
      load_four_words(block + 16 + 32 * pair + 16 * i, words);
      UNPACED_UNROLL
      for (int k = 0; k < 4; ++k) {
        weights[k].words[i] = words[k] & 0x0f0f0f0fU;
        weights[k].words[2 + i] = words[k] & 0xf0f0f0f0U;
      }
    }
  }
};

struct Q5K : TwoGroups<0> {
  static constexpr int kBytes = 176;
  static constexpr int kThreads = 16;
  static constexpr int kAlignment = 16;

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    load_scales(block, part, weights);
    const int pair = part / 4;
    const std::uint8_t* high_words = block + 16 + 4 * (part % 4);
    const std::uint8_t* words = block + 48 + 32 * pair + 4 * (part % 4);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto word = load_aligned<std::uint32_t>(words + 16 * i);
      const auto high = load_aligned<std::uint32_t>(high_words + 16 * i) >> (2 * pair);
      weights.words[i] = (word & 0x0f0f0f0fU) | ((high << 4) & 0x10101010U);
      weights.words[2 + i] = ((word >> 4) & 0x0f0f0f0fU) | ((high << 3) & 0x10101010U);
    }
    return weights;
  }

  // Of threads 4 * pair and the next three.
  UNPACED_BOTH static void load_quad(const std::uint8_t* block, int pair, Weights (&weights)[4]) {
    load_common_scales(block, pair, weights);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      std::uint32_t words[4];
      std::uint32_t high_words[4];
      load_four_words(block + 48 + 32 * pair + 16 * i, words);
      load_four_words(block + 16 + 16 * i, high_words);
      UNPACED_UNROLL
      for (int k = 0; k < 4; ++k) {
        const std::uint32_t high = high_words[k] >> (2 * pair);
        weights[k].words[i] = (words[k] & 0x0f0f0f0fU) | ((high << 4) & 0x10101010U);
        weights[k].words[2 + i] = ((words[k] >> 4) & 0x0f0f0f0fU) | ((high << 3) & 0x10101010U);
      }
    }
  }
};

struct Q6K : Q8Inputs<256> {
  static constexpr int kBytes = 210;
  static constexpr int kThreads = 32;
  static constexpr int kAlignment = 2;

  struct Input {
    std::uint32_t words[2];
    float scales[2];
  };
  static constexpr int kInputWords = 4;
  static constexpr std::uint32_t kCommonWords = 0xc;  // the scales (lane_quads.h)

  struct Weights {
    std::uint32_t words[2];  // weights of a byte, 32 too large
    Factor scales[2];
    float scale;
  };

  // Of a half of the block, 128 weights, a thread has 4 inputs of two groups of 32 that lie 64
  // apart.
  UNPACED_BOTH static Input gather(const Q8Block* blocks, int part) {
    const Q8Block* first = blocks + 4 * (part / 16) + (part % 16) / 8;
    Input input;
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      input.words[i] = q8_word(first + 2 * i, part % 8);
      input.scales[i] = q8_scale(first + 2 * i);
    }
    return input;
  }

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    const std::uint32_t low = load_even_word(block + 4 * part);
    const std::uint32_t high =
        load_even_word(block + 128 + 4 * (8 * (part / 16) + part % 8)) >> (2 * ((part % 16) / 8));
    const std::uint8_t* scales = block + 192 + 8 * (part / 16) + (part % 16) / 4;
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      weights.words[i] = joined(low, high, i);
      const auto scale = static_cast<std::int8_t>(scales[4 * i]);
      weights.scales[i] = factor_of(unbiased(kBias + scale));
    }
    weights.scale = half_value(load_aligned<std::uint16_t>(block + 208));
    return weights;
  }

  // Of threads 4 * part and the next three, which have neighbouring words and the same scales.
  UNPACED_BOTH static void load_quad(const std::uint8_t* block, int part, Weights (&weights)[4]) {
    std::uint32_t low[4];
    std::uint32_t high[4];
    load_words(block + 16 * part, low);
    // Bits of the next bytes that come in at the top are masked away.
    load_words(block + 128 + 32 * (part / 4) + 16 * (part % 2), high, 2 * (part % 4 / 2));
    const std::uint8_t* scales = block + 192 + 8 * (part / 4) + part % 4;
    Factor factors[2];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i)
      factors[i] = factor_of(unbiased(kBias + static_cast<std::int8_t>(scales[4 * i])));
    const float scale = half_value(load_aligned<std::uint16_t>(block + 208));
    UNPACED_UNROLL
    for (int k = 0; k < 4; ++k) {
      UNPACED_UNROLL
      for (int i = 0; i < 2; ++i) {
        weights[k].words[i] = joined(low[k], high[k], i);
        weights[k].scales[i] = factors[i];
      }
      weights[k].scale = scale;
    }
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    float inner = 0;
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      // 32 times the inputs are taken off beforehand, once for all rows.
      const std::int32_t start = byte_dot(0xe0e0e0e0U, input.words[i], kBias);
      const std::int32_t dot = byte_dot(weights.words[i], input.words[i], start);
      inner = fused(input.scales[i], scaled(dot, weights.scales[i]), inner);
    }
    return fused(weights.scale, inner, before);
  }

 private:
  // Four bits of a byte and two above them.
  UNPACED_BOTH static std::uint32_t joined(std::uint32_t low, std::uint32_t high, int i) {
    return ((low >> (4 * i)) & 0x0f0f0f0fU) | (((high >> (4 * i)) << 4) & 0x30303030U);
  }
};

}  // namespace unpaced::mat_vec
