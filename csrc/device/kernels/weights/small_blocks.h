// Blocks of 32 weights, Q8_0, Q4_0, Q5_0 and MXFP4, and IQ4_XS, whose groups of 32 a thread takes
// whole: what one of ggml's threads does with its part of a block (vecdotq.cuh: vec_dot_q8_0_q8_1
// and so on). k_quants.h says what a format has.
#pragma once

#include <cstdint>

#include "device/kernels/q8_row.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

struct Q8_0 : Q8Inputs<32> {
  static constexpr int kBytes = 34;
  static constexpr int kThreads = 4;
  static constexpr int kAlignment = 2;

  struct Input {
    std::uint32_t words[2];
    float scale;
    float unused;  // a whole vector of four words
  };
  static constexpr int kInputWords = 4;
  static constexpr std::uint32_t kCommonWords = 0xc;  // the scale, and nothing (lane_quads.h)

  struct Weights {
    std::uint32_t words[2];
    float scale;
  };

  UNPACED_BOTH static Input gather(const Q8Block* block, int part) {
    return {{q8_word(block, 2 * part), q8_word(block, 2 * part + 1)}, q8_scale(block), 0};
  }

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    weights.scale = half_value(load_aligned<std::uint16_t>(block));
    load_words(block + 2 + 8 * part, weights.words);
    return weights;
  }

  // A block's four threads.
  UNPACED_BOTH static void load_quad(const std::uint8_t* block, int, Weights (&weights)[4]) {
    std::uint32_t words[8];
    load_words(block + 2, words);
    const float scale = half_value(load_aligned<std::uint16_t>(block));
    UNPACED_UNROLL
    for (int k = 0; k < 4; ++k) weights[k] = {{words[2 * k], words[2 * k + 1]}, scale};
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    const std::int32_t dot = byte_dot(weights.words[1], input.words[1],
                                      byte_dot(weights.words[0], input.words[0], kBias));
    return fused(product(weights.scale, input.scale), unbiased(dot), before);
  }
};

// 16 of a block's 32 weights: words `part * 2` and the next one of each of its halves.
struct HalfBlock : Q8Inputs<32> {
  static constexpr int kThreads = 2;

  UNPACED_BOTH static void gather_words(const Q8Block* block, int part, std::uint32_t (&words)[4]) {
    UNPACED_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = q8_word(block, 2 * part + (i & 1) + 4 * (i / 2));
  }

  UNPACED_BOTH static std::int32_t dot(const std::uint32_t (&weights)[4],
                                       const std::uint32_t (&inputs)[4]) {
    std::int32_t total = kBias;
    UNPACED_UNROLL
    for (int i = 0; i < 4; ++i) total = byte_dot(weights[i], inputs[i], total);
    return total;
  }
};

// Q4_0 and Q5_0: weights that are `kOffset` too large, taken off by means of the inputs' sum, of
// which each of the two threads takes half.
template <int kOffset>
struct OffsetHalfBlock : HalfBlock {
  struct Input {
    std::uint32_t words[4];
    float scale;
    float offset;  // kOffset / 2 * the sum of the block's inputs
  };
  static constexpr int kInputWords = 6;

  struct Weights {
    std::uint32_t words[4];
    float scale;
  };

  UNPACED_BOTH static Input gather(const Q8Block* block, int part) {
    Input input;
    gather_words(block, part, input.words);
    input.scale = q8_scale(block);
    input.offset = product(half_value(block->scale_and_sum >> 16), 0.5F * kOffset);
    return input;
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    const float value = unbiased(dot(weights.words, input.words));
    return fused(weights.scale, fused(value, input.scale, -input.offset), before);
  }
};

struct Q4_0 : OffsetHalfBlock<8> {
  static constexpr int kBytes = 18;
  static constexpr int kAlignment = 2;

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    weights.scale = half_value(load_aligned<std::uint16_t>(block));
    std::uint32_t words[2];
    load_words(block + 2 + 8 * part, words);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      weights.words[i] = words[i] & 0x0f0f0f0fU;
      weights.words[2 + i] = (words[i] >> 4) & 0x0f0f0f0fU;
    }
    return weights;
  }
};

struct Q5_0 : OffsetHalfBlock<16> {
  static constexpr int kBytes = 22;
  static constexpr int kAlignment = 2;

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    weights.scale = half_value(load_aligned<std::uint16_t>(block));
    const std::uint32_t high = load_even_word(block + 2);
    std::uint32_t words[2];
    load_words(block + 6 + 8 * part, words);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bits = high >> (4 * (2 * part + i));
      weights.words[i] = (words[i] & 0x0f0f0f0fU) | fifth_bits(bits);
      weights.words[2 + i] = ((words[i] >> 4) & 0x0f0f0f0fU) | fifth_bits(bits >> 16);
    }
    return weights;
  }

 private:
  // Bits 0 to 3 as bit 4 of the four bytes.
  UNPACED_BOTH static std::uint32_t fifth_bits(std::uint32_t bits) {
    return ((bits << 4) & 0x10U) | ((bits << 11) & 0x1000U) | ((bits << 18) & 0x100000U) |
           ((bits << 25) & 0x10000000U);
  }
};

// Sixteen signed bytes, the values of four-bit codes, as words.
struct CodeTable {
  std::uint32_t words[4];
};

// The values of eight codes: those of the low halves of the bytes, then of the high ones.
UNPACED_BOTH void look_up(std::uint32_t codes, const CodeTable& table, std::uint32_t& low,
                          std::uint32_t& high) {
#if defined(__CUDA_ARCH__)
  // A byte permutation chooses of eight: once in each half of the table, then between the two by
  // the codes' top bits.
  const std::uint32_t choice = 0x32103210U | ((codes & 0x88888888U) >> 1);
  std::uint32_t found[2];
  UNPACED_UNROLL
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t some = codes >> (16 * i);
    found[i] = __byte_perm(__byte_perm(table.words[0], table.words[1], some),
                           __byte_perm(table.words[2], table.words[3], some), choice >> (16 * i));
  }
  low = __byte_perm(found[0], found[1], 0x6420);
  high = __byte_perm(found[0], found[1], 0x7531);
#else
  low = high = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t byte = codes >> (8 * i);
    const std::uint32_t a = byte & 15U, b = (byte >> 4) & 15U;
    low |= ((table.words[a / 4] >> (8 * (a % 4))) & 0xffU) << (8 * i);
    high |= ((table.words[b / 4] >> (8 * (b % 4))) & 0xffU) << (8 * i);
  }
#endif
}

// {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}: twice what E2M1 says.
UNPACED_BOTH constexpr CodeTable mxfp4_codes() {
  return {{0x03020100U, 0x0c080604U, 0xfdfeff00U, 0xf4f8fafcU}};
}

// {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}.
UNPACED_BOTH constexpr CodeTable iq4_codes() {
  return {{0xbfad9881U, 0xf6eaddcfU, 0x26190d01U, 0x71594535U}};
}

struct Mxfp4 : HalfBlock {
  static constexpr int kBytes = 17;
  static constexpr int kAlignment = 1;

  struct Input {
    std::uint32_t words[4];
    float scale;
  };
  static constexpr int kInputWords = 5;

  struct Weights {
    std::uint32_t words[4];
    float scale;
  };

  UNPACED_BOTH static Input gather(const Q8Block* block, int part) {
    Input input;
    gather_words(block, part, input.words);
    input.scale = q8_scale(block);
    return input;
  }

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    // A power of two; 0 stands for 2^-127, which is subnormal, and 255 for NaN.
    const std::uint32_t power = block[0];
    weights.scale = product(as_float(power == 0     ? 0x00400000U
                                     : power == 255 ? 0x7fff0000U
                                                    : power << 23),
                            0.5F);
    std::uint32_t words[2];
    load_words(block + 1 + 8 * part, words);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i)
      look_up(words[i], mxfp4_codes(), weights.words[i], weights.words[2 + i]);
    return weights;
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    const float value = unbiased(dot(weights.words, input.words));
    return fused(product(weights.scale, input.scale), value, before);
  }
};

struct Iq4Xs : Q8Inputs<256> {
  static constexpr int kBytes = 136;
  static constexpr int kThreads = 8;
  static constexpr int kAlignment = 8;

  struct Input {
    std::uint32_t words[8];
    float scale;
  };
  static constexpr int kInputWords = 9;

  struct Weights {
    std::uint32_t words[8];
    Factor factor;
    float scale;
  };

  UNPACED_BOTH static Input gather(const Q8Block* blocks, int part) {
    Input input;
    UNPACED_UNROLL
    for (int i = 0; i < 8; ++i) input.words[i] = q8_word(blocks + part, i);
    input.scale = q8_scale(blocks + part);
    return input;
  }

  UNPACED_BOTH static Weights load(const std::uint8_t* block, int part) {
    Weights weights;
    const auto header = load_aligned<std::uint32_t>(block);  // F16 scale, the scales' high bits
    const std::uint32_t low = block[4 + part / 2] >> (4 * (part % 2));
    const std::uint32_t high = header >> (16 + 2 * part);
    const auto factor = static_cast<std::int32_t>((low & 15U) | ((high & 3U) << 4)) - 32;
    weights.factor = factor_of(unbiased(kBias + factor));
    weights.scale = half_value(header & 0xffffU);
    const std::uint8_t* codes = block + 8 + 16 * part;
    UNPACED_UNROLL
    for (int i = 0; i < 4; ++i) {
      look_up(load_aligned<std::uint32_t>(codes + 4 * i), iq4_codes(), weights.words[i],
              weights.words[4 + i]);
    }
    return weights;
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    std::int32_t dot = kBias;
    UNPACED_UNROLL
    for (int i = 0; i < 8; ++i) dot = byte_dot(weights.words[i], input.words[i], dot);
    return fused(product(weights.scale, input.scale), scaled(dot, weights.factor), before);
  }
};

}  // namespace unpaced::mat_vec
