// Q4_K for tensor cores (tile.h).
//
// A block of 256 weights is four records: two groups of 32, which are a byte's two halves. ggml's
// four threads of a record have eight weights of each group: words t and t + 4 of the group's
// bytes. A record's weights are a warp's work; it makes a sum a thread of ggml's.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {

struct TensorQ4K : Q4K {
  static constexpr int kRecords = 4;        // of a block (tensor_records.h)
  static constexpr int kRecordThreads = 4;  // of ggml's

  struct alignas(16) Four {
    float of[4];
  };
  struct alignas(16) Words {
    std::uint32_t of[4];
  };

  // Stores what lane `lane` of a record's warp has to of column group() (tensor_records.h).
  // `inputs` are the record's two blocks of that column.
  UNPACED_BOTH static void store_inputs(std::uint8_t* record, int lane, const Q8Block* inputs) {
    const TileLane at(lane);
    const int column = at.group();
    Words words[2];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(inputs[i].values) +
                          16 * (at.pair() / 2) + 2 * (at.pair() % 2);
      UNPACED_UNROLL
      for (int t = 0; t < 4; ++t) {
        const std::uint32_t two = load_aligned<std::uint16_t>(bytes + 4 * t) ^ 0x8080U;
        words[i].of[t] = halves_of_bytes(two);
      }
    }
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) reinterpret_cast<Words*>(record)[i * kLanes + lane] = words[i];
    const int thread = at.pair();
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float scale = q8_scale(inputs + i);
      const std::int32_t bytes =
          byte_dot(0x01010101U, q8_word(inputs + i, thread + 4),
                   byte_dot(0x01010101U, q8_word(inputs + i, thread), kBias));
      *reinterpret_cast<float*>(record + record_sum_at(column, i, thread)) =
          product(scale, unbiased(bytes));
      if (thread == i) *reinterpret_cast<float*>(record + record_scale_at(column, i)) = scale;
    }
  }

  // What a lane needs of a record of its two rows.
  struct Rows {
    std::uint32_t words[2][4];
    float products[2][TileLane::kSums];  // a group's scale times its input's, times 2^24
    float minima[2][2];                  // of a row and group
    float scale[2], minimum[2];          // of a row's block
  };

  // `blocks` are those of rows group() and group() + 8.
  UNPACED_BOTH static Rows load(const std::uint8_t* const (&blocks)[2], int record, int lane,
                                const std::uint8_t* inputs) {
    const TileLane at(lane);
    const Four scales = reinterpret_cast<const Four*>(inputs + kRecordScalesAt)[at.pair()];
    Rows rows;
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      load_four_words(blocks[r] + 16 + 32 * record + 16 * (at.pair() / 2), rows.words[r]);
      std::uint32_t header[4];
      load_four_words(blocks[r], header);
      rows.scale[r] = half_value(header[0] & 0xffffU);
      rows.minimum[r] = half_value(header[0] >> 16);
      const std::uint32_t bytes = scale_bytes(header, record);
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
  UNPACED_BOTH static void add(const Rows& rows, const std::uint8_t* inputs, int lane, Place& place,
                               float (&sums)[kRecordThreads][TileLane::kSums]) {
    const TileLane at(lane);
    Words words[2];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i)
      words[i] = reinterpret_cast<const Words*>(inputs)[i * kLanes + lane];
    const std::uint32_t bytes = at.pair() % 2 == 0 ? 0x4140 : 0x4342;
    UNPACED_UNROLL
    for (int t = 0; t < kRecordThreads; ++t) {
      std::uint32_t weights[2][2];
      UNPACED_UNROLL
      for (int r = 0; r < 2; ++r) {
        const std::uint32_t two = chosen_bytes(rows.words[r][t], 0, bytes);
        weights[0][r] = two & 0x000f000fU;
        weights[1][r] = two & 0x00f000f0U;
      }
      float dots[2][TileLane::kSums];
      place.multiply(dots[0], weights[0], words[0].of[t]);
      place.multiply(dots[1], weights[1], words[1].of[t]);
      const Four of_inputs =
          reinterpret_cast<const Four*>(inputs + kRecordSumsAt)[t * kTileColumns / 2 + at.pair()];
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
