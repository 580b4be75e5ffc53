// Q6_K for tensor cores (tile.h).
//
// One of ggml's threads has four weights of each of two groups: half of what tensor cores sum. So
// the lanes that bring the first four of eight values have those of the first group, and the others
// those of the second one; a product is made for each group, of inputs that are zeros beside it.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/record_inputs.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/lane_quads.h"

namespace unpaced::mat_vec {

template <class Record_>
struct TensorQ6K : Q6K {
  using Record = Record_;

  // Which of a block's quads it is.
  UNPACED_BOTH static int part_of(std::int32_t, int quad) { return quad % (kThreads / kQuad); }

  static constexpr float kOfSums = 1;

  // What a lane needs of a quad's weights, of its two rows.
  struct Rows {
    std::uint32_t weights[2][kQuad];     // two F16 numbers: 2^-24 of the weights, or 2^-20
    float products[2][TileLane::kSums];  // a group's scale times its input's, times 2^24 or 2^20
    float scale[2];                      // of a row's block
  };

  // Quad 0 … 7 of a block: its half, which of two groups of 32, which half of these.
  struct Part {
    int half, group, words;
    UNPACED_BOTH explicit Part(int quad) : half(quad / 4), group(quad / 2 % 2), words(quad % 2) {}
  };

  // `blocks` are those of rows group() and group() + 8, `inputs` the block's records.
  template <class Place>
  UNPACED_BOTH static Rows load(const std::uint8_t* const (&blocks)[2], int quad, int lane,
                                const std::uint8_t* inputs, Place&) {
    const TileLane at(lane);
    const Part part(quad);
    const bool is_second = at.pair() >= 2;
    const int place = 16 * part.words + 2 * (at.pair() % 2);
    // The second group's low bits are a byte's upper half, and stay where they are.
    const std::uint32_t low_bits = is_second ? 0x00f000f0U : 0x000f000fU;
    const std::uint32_t high_bits = is_second ? 0x03000300U : 0x00300030U;
    const std::uint32_t minus_32 = is_second ? 0x82008200U : 0x80208020U;
    Rows rows;
    float scales[2][2];
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      const std::uint8_t* low = blocks[r] + 64 * part.half + 32 * part.group + place;
      const std::uint8_t* high = blocks[r] + 128 + 32 * part.half + place;
      UNPACED_UNROLL
      for (int t = 0; t < kQuad; ++t) {
        // Each byte of low bits has its high ones above it.
        const std::uint32_t both = chosen_bytes(load_aligned<std::uint16_t>(low + 4 * t),
                                                load_aligned<std::uint16_t>(high + 4 * t), 0x5140);
        const std::uint32_t weights =
            (both & low_bits) | (both >> (4 + 2 * part.group) & high_bits);
        rows.weights[r][t] = fused_halves(weights, 0x3c003c00U, minus_32);
      }
      const std::uint8_t* of_groups = blocks[r] + 192 + 8 * part.half + 2 * part.group + part.words;
      scales[r][0] = scaled(kBias + load_aligned<std::int8_t>(of_groups), factor_of(kTwoTo24));
      scales[r][1] = scaled(kBias + load_aligned<std::int8_t>(of_groups + 4), factor_of(kTwoTo20));
      rows.scale[r] = half_value(load_aligned<std::uint16_t>(blocks[r] + 208));
    }
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto of_inputs = load_aligned<TwoFloats>(record_of(inputs, part, i) +
                                                     Record::scale_at(2 * at.pair(), part.group));
      UNPACED_UNROLL
      for (int k = 0; k < TileLane::kSums; ++k)
        rows.products[i][k] = product(scales[k / 2][i], of_inputs.of[k % 2]);
    }
    return rows;
  }

  // One turn of ggml's loop of a quad, for sixteen rows and all columns.
  template <class Place>
  UNPACED_BOTH static void add(const Rows& rows, const std::uint8_t* inputs, int quad, int lane,
                               Place& place, float (&sums)[kQuad][TileLane::kSums]) {
    const TileLane at(lane);
    const Part part(quad);
    const int pair = 2 * part.words + at.pair() % 2;
    std::uint32_t words[kQuad];
    load_values<Record>(record_of(inputs, part, at.pair() / 2), part.group, 4 * at.group() + pair,
                        words);
    const std::uint32_t of_first = at.pair() < 2 ? 0xffffffffU : 0;
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t) {
      const std::uint32_t weights[2] = {rows.weights[0][t], rows.weights[1][t]};
      float dots[2][TileLane::kSums];
      place.multiply(dots[0], weights, words[t] & of_first);
      place.multiply(dots[1], weights, words[t] & ~of_first);
      UNPACED_UNROLL
      for (int i = 0; i < TileLane::kSums; ++i) {
        const float inner =
            fused(rows.products[1][i], dots[1][i], fused(rows.products[0][i], dots[0][i], 0.0F));
        sums[t][i] = fused(rows.scale[i / 2], inner, sums[t][i]);
      }
    }
  }

 private:
  static constexpr float kTwoTo24 = 16777216.0F;
  static constexpr float kTwoTo20 = 1048576.0F;

  // Of group i: groups lie 64 values apart.
  UNPACED_BOTH static const std::uint8_t* record_of(const std::uint8_t* inputs, const Part& part,
                                                    int i) {
    return inputs + (2 * part.half + i) * Record::kBytes;
  }
};

}  // namespace unpaced::mat_vec
