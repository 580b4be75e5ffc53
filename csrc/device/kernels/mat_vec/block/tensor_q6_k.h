// Q6_K for tensor cores (tile.h).
//
// One of ggml's threads has four weights of each of two groups: half of what tensor cores sum. So
// of the eight values of a product the lanes bring four of one thread and four of another one, of
// the same group; each thread's product is made of inputs that are zeros beside its own. A lane's
// bytes have both groups, so it loads each once.
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

  // What a lane needs of a quad's weights, of its two rows: those of two threads.
  static constexpr int kLaneThreads = kQuad / 2;
  struct Rows {
    // [group][thread][row]: two F16 numbers: 2^-24 of the weights, or 2^-20
    std::uint32_t weights[2][kLaneThreads][2];
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
    const int place = 16 * part.words + 4 * first_thread(at) + 2 * (at.pair() % 2);
    Rows rows;
    float scales[2][2];
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      const std::uint8_t* low = blocks[r] + 64 * part.half + 32 * part.group + place;
      const std::uint8_t* high = blocks[r] + 128 + 32 * part.half + place;
      UNPACED_UNROLL
      for (int t = 0; t < kLaneThreads; ++t) {
        // Each byte of low bits has its high ones above it.
        const std::uint32_t both = chosen_bytes(load_aligned<std::uint16_t>(low + 4 * t),
                                                load_aligned<std::uint16_t>(high + 4 * t), 0x5140);
        const std::uint32_t shifted = both >> (4 + 2 * part.group);
        // The second group's low bits are a byte's upper half, and stay where they are.
        rows.weights[0][t][r] =
            less_32((both & 0x000f000fU) | (shifted & 0x00300030U), 0x80208020U);
        rows.weights[1][t][r] =
            less_32((both & 0x00f000f0U) | (shifted & 0x03000300U), 0x82008200U);
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
    const int first = first_thread(at);
    const int values_at = 4 * at.group() + 2 * part.words + at.pair() % 2;
    std::uint32_t words[2][kLaneThreads];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i)
      load_two_threads<Record>(record_of(inputs, part, i), part.group, values_at, first, words[i]);
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t) {
      const bool is_mine = first == t / kLaneThreads * kLaneThreads;
      float dots[2][TileLane::kSums];
      UNPACED_UNROLL
      for (int i = 0; i < 2; ++i)
        place.multiply(dots[i], rows.weights[i][t % kLaneThreads],
                       is_mine ? words[i][t % kLaneThreads] : 0);
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

  // The first of the two threads that a lane has.
  UNPACED_BOTH static int first_thread(const TileLane& at) { return at.pair() / 2 * kLaneThreads; }
  UNPACED_BOTH static std::uint32_t less_32(std::uint32_t halves, std::uint32_t minus_32) {
    return fused_halves(halves, 0x3c003c00U, minus_32);
  }

  // Of group i: groups lie 64 values apart.
  UNPACED_BOTH static const std::uint8_t* record_of(const std::uint8_t* inputs, const Part& part,
                                                    int i) {
    return inputs + (2 * part.half + i) * Record::kBytes;
  }
};

}  // namespace unpaced::mat_vec
