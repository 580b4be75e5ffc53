// F32, F16 and BF16: what one of the threads of ggml's mul_mat_vec_f does with two weights that are
// side by side (mmvf.cu). k_quants.h says what a format has.
#pragma once

#include <cstdint>

#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

// Two weights and the floats they are multiplied by.
template <int kWeightBytes>
struct FloatPairs {
  using Source = float;
  static constexpr int kValues = 2;
  static constexpr int kSources = 2;
  static constexpr int kThreads = 1;
  static constexpr int kBytes = 2 * kWeightBytes;
  static constexpr int kAlignment = kBytes;
  static constexpr bool kIsQuantised = false;

  struct Input {
    float values[2];
  };
  static constexpr int kInputWords = 2;

  struct Weights {
    float values[2];
  };

  UNPACED_BOTH static Input gather(const float* values, int /*part*/) {
    return {{values[0], values[1]}};
  }

  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    const float first = fused(weights.values[0], input.values[0], before);
    return fused(weights.values[1], input.values[1], first);
  }
  UNPACED_BOTH static float finished(float sum) { return sum; }
};

struct F32 : FloatPairs<4> {
  UNPACED_BOTH static Weights load(const std::uint8_t* block, int /*part*/) {
    return {{load_aligned<float>(block), load_aligned<float>(block + 4)}};
  }
};

struct Bf16 : FloatPairs<2> {
  UNPACED_BOTH static Weights load(const std::uint8_t* block, int /*part*/) {
    const auto both = load_aligned<std::uint32_t>(block);
    return {{as_float(both << 16), as_float(both & 0xffff0000U)}};
  }
};

// Products of F16 weights are summed in F16, two sums a thread.
struct F16 : FloatPairs<2> {
  struct Input {
    std::uint32_t halves;
  };
  static constexpr int kInputWords = 1;

  struct Weights {
    std::uint32_t halves;
  };

  UNPACED_BOTH static Input gather(const float* values, int /*part*/) {
    return {two_halves(values[0], values[1])};
  }
  UNPACED_BOTH static Weights load(const std::uint8_t* block, int /*part*/) {
    return {load_aligned<std::uint32_t>(block)};
  }
  // The two sums are the bits of `before`.
  UNPACED_BOTH static float add(const Weights& weights, const Input& input, float before) {
    return as_float(fused_halves(weights.halves, input.halves, as_bits(before)));
  }
  UNPACED_BOTH static float finished(float sums) {
    const std::uint32_t halves = as_bits(sums);
    return sum(half_value(halves & 0xffffU), half_value(halves >> 16));
  }
};

// Of gate and up they are summed in F32: ggml takes the precision from the result's parameters, and
// a GLU has its kind where a product has its precision (ggml_cuda_mul_mat_vec_f; none of the kinds
// it fuses is 0, the default).
struct F16OfGlu : FloatPairs<2> {
  UNPACED_BOTH static Weights load(const std::uint8_t* block, int /*part*/) {
    const auto both = load_aligned<std::uint32_t>(block);
    return {{half_value(both & 0xffffU), half_value(both >> 16)}};
  }
};

}  // namespace unpaced::mat_vec
