// Q4_K for tensor cores (tile.h).
//
// Four of ggml's threads, a quad, have two groups of 32 weights, which are a byte's two halves:
// thread t has words t and t + 4 of the groups' bytes. Their inputs are a record.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/record_inputs.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/lane_quads.h"

namespace unpaced::mat_vec {

template <class Record_>
struct TensorQ4K : Q4K {
  using Record = Record_;

  // What a lane needs of a quad's weights, of its two rows.
  struct Rows {
    std::uint32_t words[2][4];
    float products[2][TileLane::kSums];  // a group's scale times its input's, times 2^24
    float minima[2][2];                  // of a row and group
    float scale[2], minimum[2];          // of a row's block
  };

  // `blocks` are those of rows group() and group() + 8, `inputs` the block's records.
  UNPACED_BOTH static Rows load(const std::uint8_t* const (&blocks)[2], int quad, int lane,
                                const std::uint8_t* inputs) {
    const TileLane at(lane);
    const std::uint8_t* record = inputs + quad * Record::kBytes;
    const auto scales = scales_of<Record>(record, lane);
    Rows rows;
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      load_four_words(blocks[r] + 16 + 32 * quad + 16 * (at.pair() / 2), rows.words[r]);
      std::uint32_t header[4];
      load_four_words(blocks[r], header);
      rows.scale[r] = half_value(header[0] & 0xffffU);
      rows.minimum[r] = half_value(header[0] >> 16);
      const std::uint32_t bytes = scale_bytes(header, quad);
      rows.minima[r][0] = byte_value<2>(bytes);
      rows.minima[r][1] = byte_value<3>(bytes);
      // The second group's weights are 16 times too large where they lie.
      const float first = byte_value<0, 24>(bytes), second = byte_value<1, 20>(bytes);
      UNPACED_UNROLL
      for (int c = 0; c < 2; ++c) {
        rows.products[0][2 * r + c] = product(first, scales.of[c]);
        rows.products[1][2 * r + c] = product(second, scales.of[2 + c]);
      }
    }
    return rows;
  }

  // One turn of ggml's loop of four threads, for sixteen rows and all columns. Weights are
  // subnormal F16 numbers, 2^-24 of what they are: their bits are the weights' own.
  template <class Place>
  UNPACED_BOTH static void add(const Rows& rows, const std::uint8_t* inputs, int quad, int lane,
                               Place& place, float (&sums)[kQuad][TileLane::kSums]) {
    const TileLane at(lane);
    const std::uint8_t* record = inputs + quad * Record::kBytes;
    std::uint32_t words[2][4];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) load_values<Record>(record, i, lane, words[i]);
    const std::uint32_t bytes = at.pair() % 2 == 0 ? 0x4140 : 0x4342;
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t) {
      std::uint32_t weights[2][2];
      UNPACED_UNROLL
      for (int r = 0; r < 2; ++r) {
        const std::uint32_t two = chosen_bytes(rows.words[r][t], 0, bytes);
        weights[0][r] = two & 0x000f000fU;
        weights[1][r] = two & 0x00f000f0U;
      }
      float dots[2][TileLane::kSums];
      place.multiply(dots[0], weights[0], words[0][t]);
      place.multiply(dots[1], weights[1], words[1][t]);
      const FourFloats of_inputs =
          sums_of<Record>(record, t, lane, words[0][t], words[1][t], place);
      UNPACED_UNROLL
      for (int i = 0; i < TileLane::kSums; ++i) {
        const int r = i / 2, c = i % 2;
        const float scaled_sum =
            fused(rows.products[1][i], dots[1][i], fused(rows.products[0][i], dots[0][i], 0.0F));
        const float minimum_sum = fused(of_inputs.of[2 + c], rows.minima[r][1],
                                        fused(of_inputs.of[c], rows.minima[r][0], 0.0F));
        const float subtracted = product(minimum_sum, rows.minimum[r]);
        sums[t][i] = sum(sums[t][i], fused(scaled_sum, rows.scale[r], -subtracted));
      }
    }
  }
};

}  // namespace unpaced::mat_vec
