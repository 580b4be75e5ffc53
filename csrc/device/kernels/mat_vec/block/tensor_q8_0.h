// Q8_0 for tensor cores (tile.h).
//
// A block of 32 weights is a quad of ggml's threads: thread t has words 2 * t and 2 * t + 1. A
// record's lanes have these in two of their four words.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/record_inputs.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced::mat_vec {

template <class Record_>
struct TensorQ8_0 : Q8_0 {
  using Record = Record_;

  // Which of a record's blocks it is.
  UNPACED_BOTH static int part_of(std::int32_t block, int) { return block % 2; }

  static constexpr float kOfSums = 1;

  // What a lane needs of a quad's weights, of its two rows.
  struct Rows {
    std::uint32_t weights[2][kQuad];  // two F16 numbers
    float products[TileLane::kSums];  // the block's scale times its input's
  };

  // `blocks` are those of rows group() and group() + 8, `inputs` the record that has the block's.
  template <class Place>
  UNPACED_BOTH static Rows load(const std::uint8_t* const (&blocks)[2], int part, int lane,
                                const std::uint8_t* inputs, Place&) {
    const TileLane at(lane);
    const auto of_inputs = load_aligned<TwoFloats>(inputs + Record::scale_at(2 * at.pair(), part));
    Rows rows;
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      UNPACED_UNROLL
      for (int t = 0; t < kQuad; ++t) {
        const std::uint32_t two =
            load_aligned<std::uint16_t>(blocks[r] + 2 + 8 * t + 2 * at.pair());
        rows.weights[r][t] = halves_of_bytes<0>(two ^ 0x8080U);
      }
      const float scale = half_value(load_aligned<std::uint16_t>(blocks[r]));
      UNPACED_UNROLL
      for (int c = 0; c < 2; ++c) rows.products[2 * r + c] = product(scale, of_inputs.of[c]);
    }
    return rows;
  }

  // One turn of ggml's loop of a quad, for sixteen rows and all columns.
  template <class Place>
  UNPACED_BOTH static void add(const Rows& rows, const std::uint8_t* inputs, int part, int lane,
                               Place& place, float (&sums)[kQuad][TileLane::kSums]) {
    const TileLane at(lane);
    const bool is_second = at.pair() >= 2;
    UNPACED_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t words[4];
      load_values<Record>(inputs, part, 4 * at.group() + 2 * half + at.pair() % 2, words);
      UNPACED_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int t = 2 * half + i;
        const std::uint32_t weights[2] = {rows.weights[0][t], rows.weights[1][t]};
        float dots[TileLane::kSums];
        place.multiply(dots, weights, is_second ? words[2 * i + 1] : words[2 * i]);
        UNPACED_UNROLL
        for (int k = 0; k < TileLane::kSums; ++k)
          sums[t][k] = fused(rows.products[k], dots[k], sums[t][k]);
      }
    }
  }
};

}  // namespace unpaced::mat_vec
