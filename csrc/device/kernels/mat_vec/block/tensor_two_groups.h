// Q4_K and Q5_K for tensor cores (tile.h).
//
// Four of ggml's threads, a quad, have two groups of 32 weights, whose low bits are a byte's two
// halves: thread t has words t and t + 4 of the groups' bytes. Their inputs are a record.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/kernels/mat_vec/block/record_inputs.h"
#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/lane_quads.h"

namespace unpaced::mat_vec {

// Two weights of each group, from the bytes that have them: F16 numbers, 2^-24 of the weights. The
// second group's low bits stay where they are, so these are 16 times too large.
struct FourBits {
  // A lane's bytes of each thread, in a word's even bytes.
  UNPACED_BOTH static void load(const std::uint8_t* block, int quad, const TileLane& at,
                                std::uint32_t (&words)[kQuad]) {
    load_four_words(block + 16 + 32 * quad + 16 * (at.pair() / 2), words);
    UNPACED_UNROLL
    for (std::uint32_t& word : words)
      word = chosen_bytes(word, 0, at.pair() % 2 == 0 ? 0x4140 : 0x4342);
  }
  UNPACED_BOTH static std::uint32_t first(std::uint32_t word, int) { return word & 0x000f000fU; }
  UNPACED_BOTH static std::uint32_t second(std::uint32_t word, int) { return word & 0x00f000f0U; }
};

struct FiveBits {
  // The same, and above each byte the one that has a fifth bit for each group of the block.
  UNPACED_BOTH static void load(const std::uint8_t* block, int quad, const TileLane& at,
                                std::uint32_t (&words)[kQuad]) {
    std::uint32_t high[kQuad];
    load_four_words(block + 48 + 32 * quad + 16 * (at.pair() / 2), words);
    load_four_words(block + 16 + 16 * (at.pair() / 2), high);
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t)
      words[t] = chosen_bytes(words[t], high[t], at.pair() % 2 == 0 ? 0x5140 : 0x7362);
  }
  UNPACED_BOTH static std::uint32_t first(std::uint32_t word, int quad) {
    return (word & 0x000f000fU) | (word >> (4 + 2 * quad) & 0x00100010U);
  }
  UNPACED_BOTH static std::uint32_t second(std::uint32_t word, int quad) {
    return (word & 0x00f000f0U) | (word >> (1 + 2 * quad) & 0x01000100U);
  }
};

template <class Format, class Bits, class Record_>
struct TwoGroupTiles : Format {
  using Record = Record_;

  // Which of a block's quads it is.
  UNPACED_BOTH static int part_of(std::int32_t, int quad) {
    return quad % (Format::kThreads / kQuad);
  }

  // Records of bytes leave too few registers for tensor cores' scales, and some would be spilled.
  static constexpr bool kSharesScales = std::is_same_v<Record, HalfRecord>;
  // Sums by these are 2^-44 of ggml's: a scale and its weights are 2^-24 of theirs each, and 16
  // times that.
  static constexpr float kOfSums = kSharesScales ? 17592186044416.0F : 1;

  // What a lane needs of a quad's weights, of its two rows.
  struct Rows {
    std::uint32_t words[2][kQuad];
    float products[2][TileLane::kSums];  // a group's scale times its input's
    float minima[2][2];                  // of a row and group
    float scale[2], minimum[2];          // of a row's block
  };

  // `blocks` are those of rows group() and group() + 8, `inputs` the block's records.
  template <class Place>
  UNPACED_BOTH static Rows load(const std::uint8_t* const (&blocks)[2], int quad, int lane,
                                const std::uint8_t* inputs, Place& place) {
    const TileLane at(lane);
    Rows rows;
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      Bits::load(blocks[r], quad, at, rows.words[r]);
      const std::uint32_t both = load_aligned<std::uint32_t>(blocks[r]);
      rows.scale[r] = half_value(both & 0xffffU);
      rows.minimum[r] = half_value(both >> 16);
    }
    const std::uint8_t* record = inputs + quad * Record::kBytes;
    if constexpr (kSharesScales)
      share_scales(blocks, quad, at, record, rows, place);
    else
      load_scales(blocks, quad, lane, record, rows);
    return rows;
  }

  // One turn of ggml's loop of a quad, for sixteen rows and all columns. Weights are subnormal
  // numbers: their bits are the weights' own.
  template <class Place>
  UNPACED_BOTH static void add(const Rows& rows, const std::uint8_t* inputs, int quad, int lane,
                               Place& place, float (&sums)[kQuad][TileLane::kSums]) {
    const std::uint8_t* record = inputs + quad * Record::kBytes;
    std::uint32_t words[2][4];
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) load_values<Record>(record, i, lane, words[i]);
    UNPACED_UNROLL
    for (int t = 0; t < kQuad; ++t) {
      std::uint32_t weights[2][2];
      UNPACED_UNROLL
      for (int r = 0; r < 2; ++r) {
        weights[0][r] = Bits::first(rows.words[r][t], quad);
        weights[1][r] = Bits::second(rows.words[r][t], quad);
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

 private:
  // The six-bit numbers of a row and quad are in a lane's hands once: the first two of a row's four
  // lanes have scales and minima of row group(), the others of row group() + 8, and lanes swap
  // them. As the first four of eight values that they bring to a product, of which the columns have
  // but one, tensor cores multiply scales by the inputs' and hand minima to all four lanes.
  template <class Place>
  UNPACED_BOTH static void share_scales(const std::uint8_t* const (&blocks)[2], int quad,
                                        const TileLane& at, const std::uint8_t* record, Rows& rows,
                                        Place& place) {
    const bool minima = at.pair() % 2 != 0;
    std::uint32_t header[4];
    load_four_words(at.pair() < 2 ? blocks[0] : blocks[1], header);
    const std::uint32_t own = Format::scale_halves(header, quad, minima);
    // The second group's weights are 16 times too large where they lie.
    const std::uint32_t even = own + (own & 0xffffU) * (minima ? 0 : 15);
    const std::uint32_t of_rows[2] = {even, as_bits(place.shuffle_xor(as_float(even), 2))};
    const std::uint32_t scales =
        two_halves(load_aligned<float>(record + Record::scale_at(at.group(), 0)),
                   load_aligned<float>(record + Record::scale_at(at.group(), 1)));
    const std::uint32_t of_scales = at.pair() == 0 ? scales : 0;
    const std::uint32_t of_minima = at.pair() == 1 ? kTwoToMinus20 : 0;
    place.multiply(rows.products[0], of_rows, of_scales & 0xffffU);
    place.multiply(rows.products[1], of_rows, of_scales & 0xffff0000U);
    float of_columns[2][TileLane::kSums];  // both of a lane's have the same
    place.multiply(of_columns[0], of_rows, of_minima);
    place.multiply(of_columns[1], of_rows, of_minima << 16);
    UNPACED_UNROLL
    for (int i = 0; i < 4; ++i) rows.minima[i / 2][i % 2] = of_columns[i % 2][i / 2 * 2];
  }

  static constexpr std::uint32_t kTwoToMinus20 = 0x0010;  // as an F16 number

  // Each lane has all that it needs.
  UNPACED_BOTH static void load_scales(const std::uint8_t* const (&blocks)[2], int quad, int lane,
                                       const std::uint8_t* record, Rows& rows) {
    const FourFloats scales = scales_of<Record>(record, lane);
    UNPACED_UNROLL
    for (int r = 0; r < 2; ++r) {
      std::uint32_t header[4];
      load_four_words(blocks[r], header);
      const std::uint32_t bytes = Format::scale_bytes(header, quad);
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
  }
};

template <class Record>
using TensorQ4K = TwoGroupTiles<Q4K, FourBits, Record>;
template <class Record>
using TensorQ5K = TwoGroupTiles<Q5K, FiveBits, Record>;

}  // namespace unpaced::mat_vec
