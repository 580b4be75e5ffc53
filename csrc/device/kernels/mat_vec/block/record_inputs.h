// Records of inputs (tensor_records.h): what tensor cores' warps read of them, and their making
// where no kernel before has left any.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/kernels/mat_vec/block/tile.h"
#include "device/kernels/rows/tensor_records.h"
#include "device/kernels/weights/half_arithmetic.h"
#include "device/kernels/weights/k_quants.h"

namespace unpaced::mat_vec {

// The values of block `block` that lie at a place (record_place()), two of each of four threads, as
// F16 numbers.
template <class Record>
UNPACED_BOTH void load_values(const std::uint8_t* record, int block, int place,
                              std::uint32_t (&words)[4]) {
  const std::uint8_t* from = record + Record::kBlockBytes * block;
  if constexpr (std::is_same_v<Record, HalfRecord>) {
    load_four_words(from + 16 * place, words);
  } else {
    const auto bytes = load_aligned<TwoWords>(from + 8 * place);
    UNPACED_UNROLL
    for (int i = 0; i < 2; ++i) {
      words[2 * i] = halves_of_bytes<0>(bytes.of[i]);
      words[2 * i + 1] = halves_of_bytes<2>(bytes.of[i]);
    }
  }
}

// The same of two threads only: `first`, which is even, and the next one.
template <class Record>
UNPACED_BOTH void load_two_threads(const std::uint8_t* record, int block, int place, int first,
                                   std::uint32_t (&words)[2]) {
  const std::uint8_t* from = record + Record::kBlockBytes * block;
  if constexpr (std::is_same_v<Record, HalfRecord>) {
    const auto two = load_aligned<TwoWords>(from + 16 * place + 4 * first);
    words[0] = two.of[0];
    words[1] = two.of[1];
  } else {
    const auto bytes = load_aligned<std::uint32_t>(from + 8 * place + 2 * first);
    words[0] = halves_of_bytes<0>(bytes);
    words[1] = halves_of_bytes<2>(bytes);
  }
}

// Of a lane's two columns: the first block's scales, then the second one's.
template <class Record>
UNPACED_BOTH FourFloats scales_of(const std::uint8_t* record, int lane) {
  return load_aligned<FourFloats>(record + Record::scale_at(2 * TileLane(lane).pair(), 0));
}

// The same of the sums of thread t's values times the scales. `first` and `second` are the thread's
// values in the lane: tensor cores can make the sums, too.
template <class Record, class Place>
UNPACED_BOTH FourFloats sums_of(const std::uint8_t* record, int t, int lane, std::uint32_t first,
                                std::uint32_t second, Place& place) {
  if constexpr (std::is_same_v<Record, HalfRecord>) {
    return load_aligned<FourFloats>(record + Record::sum_at(2 * TileLane(lane).pair(), 0, t));
  } else {
    const std::uint32_t ones[2] = {0x3c003c00U, 0x3c003c00U};
    float totals[2][TileLane::kSums];
    place.multiply(totals[0], ones, first);
    place.multiply(totals[1], ones, second);
    FourFloats sums = scales_of<Record>(record, lane);
    UNPACED_UNROLL
    for (int i = 0; i < 4; ++i) sums.of[i] = product(sums.of[i], totals[i / 2][i % 2]);
    return sums;
  }
}

// What lane `lane` of a record's warp has to store of column group(). `inputs` are the record's two
// blocks of that column.
template <class Record>
UNPACED_BOTH void store_record(std::uint8_t* record, int lane, const Q8Block* inputs) {
  const TileLane at(lane);
  const int column = at.group(), thread = at.pair();
  UNPACED_UNROLL
  for (int i = 0; i < 2; ++i) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(inputs[i].values) +
                        16 * (at.pair() / 2) + 2 * (at.pair() % 2);
    std::uint32_t twos[4];
    UNPACED_UNROLL
    for (int t = 0; t < 4; ++t) twos[t] = load_aligned<std::uint16_t>(bytes + 4 * t) ^ 0x8080U;
    std::uint8_t* to = record + Record::kBlockBytes * i;
    const float scale = q8_scale(inputs + i);
    if constexpr (std::is_same_v<Record, HalfRecord>) {
      std::uint32_t words[4];
      UNPACED_UNROLL
      for (int t = 0; t < 4; ++t) words[t] = halves_of_bytes<0>(twos[t]);
      store_four_words(words, to + 16 * lane);
      const std::int32_t total =
          byte_dot(0x01010101U, q8_word(inputs + i, thread + 4),
                   byte_dot(0x01010101U, q8_word(inputs + i, thread), kBias));
      *reinterpret_cast<float*>(record + Record::sum_at(column, i, thread)) =
          product(scale, unbiased(total));
    } else {
      *reinterpret_cast<TwoWords*>(to +
                                   8 * lane) = {{twos[0] | twos[1] << 16, twos[2] | twos[3] << 16}};
    }
    if (thread == i) *reinterpret_cast<float*>(record + Record::scale_at(column, i)) = scale;
  }
}

}  // namespace unpaced::mat_vec
