// A step of a tile by a warp's tensor cores beside ggml's sums of it, bit by bit
// (mmq-vec-dot.cuh): every format, alone and as gate and up, each number of a warp's columns.
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "check.h"
#include "host_warp.h"
//
#include "device/kernels/mat_mat/k_tiles.cuh"
#include "device/kernels/mat_mat/q6_k_tile.cuh"
#include "device/kernels/mat_mat/q8_0_tile.cuh"

namespace tiles_test {
namespace {

using namespace unpaced;
using namespace unpaced::mat_mat;
using unpaced::test::HostWarp;

constexpr int kRows = 16, kSteps = 8, kStepValues = 256, kGroup = 32;

std::mt19937 random_numbers(11);
float even() { return std::uniform_real_distribution<float>(-1, 1)(random_numbers); }
ggml_fp16_t half_bits(float value) { return ggml_fp32_to_fp16(value); }
float half_float(const std::uint8_t* at) {
  ggml_fp16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return ggml_fp16_to_fp32(bits);
}
float rounded(float value) { return ggml_fp16_to_fp32(ggml_fp32_to_fp16(value)); }

// 256 values of eight columns, rounded.
struct Columns {
  std::uint8_t bytes[BatchRecord::kBytes];

  [[nodiscard]] int value(int column, int i) const {
    return static_cast<std::int8_t>(bytes[BatchRecord::value_at(column, i / kGroup, i % kGroup)]);
  }
  [[nodiscard]] float scale(int column, int group) const {
    return half_float(bytes + BatchRecord::scale_at(column, group));
  }
  [[nodiscard]] float sum(int column, int group) const {
    return half_float(bytes + BatchRecord::sum_at(column, group));
  }
  [[nodiscard]] float number(int column, int group) const {
    float made;
    std::memcpy(&made, bytes + BatchRecord::float_at(column, group), sizeof made);
    return made;
  }
};

Columns random_columns() {
  Columns made;
  for (int column = 0; column < 8; ++column) {
    for (int group = 0; group < 8; ++group) {
      for (int i = 0; i < kGroup; ++i) {
        const int value = static_cast<int>(random_numbers() % 255) - 127;
        made.bytes[BatchRecord::value_at(column, group, i)] = static_cast<std::uint8_t>(value);
      }
      const float scale = std::fabs(even()) / 100;
      const ggml_fp16_t halves[2] = {half_bits(scale), half_bits(3 * even())};
      std::memcpy(made.bytes + BatchRecord::scale_at(column, group), &halves[0], 2);
      std::memcpy(made.bytes + BatchRecord::sum_at(column, group), &halves[1], 2);
      std::memcpy(made.bytes + BatchRecord::float_at(column, group), &scale, 4);
    }
  }
  return made;
}

// Rows of kSteps steps, one behind the other, and what a value of them is without its scales.
class Rows {
 public:
  Rows(ggml_type type, int step_bytes) : type_(type), step_bytes_(step_bytes) {
    bytes_.resize(static_cast<std::size_t>(kRows * row_bytes()) + 64);
    for (std::uint8_t& byte : bytes_) byte = static_cast<std::uint8_t>(random_numbers());
    for (int row = 0; row < kRows; ++row) {
      for (int step = 0; step < kSteps; ++step) put_scales(step_of(row, step));
    }
  }

  [[nodiscard]] int row_bytes() const { return kSteps * step_bytes_; }
  [[nodiscard]] const std::uint8_t* row(int i) const { return bytes_.data() + i * row_bytes(); }
  [[nodiscard]] const std::uint8_t* step_of(int row, int step) const {
    return bytes_.data() + row * row_bytes() + step * step_bytes_;
  }

  // A step's 256 values, by ggml's own unpacking of blocks whose scales are one.
  [[nodiscard]] std::vector<int> values(int row, int step) const {
    std::vector<std::uint8_t> block(step_of(row, step), step_of(row, step) + step_bytes_);
    const ggml_fp16_t one = half_bits(1), none = 0;
    if (type_ == GGML_TYPE_Q6_K) {
      std::fill_n(block.begin() + 192, 16, std::uint8_t{1});
      std::memcpy(block.data() + 208, &one, 2);
    } else if (type_ == GGML_TYPE_Q8_0) {
      for (int group = 0; group < 8; ++group) std::memcpy(block.data() + 34 * group, &one, 2);
    } else {
      std::memcpy(block.data(), &one, 2);
      std::memcpy(block.data() + 2, &none, 2);
      std::fill_n(block.begin() + 4, 4, std::uint8_t{1});
      std::fill_n(block.begin() + 8, 4, std::uint8_t{0});
      std::fill_n(block.begin() + 12, 4, std::uint8_t{1});
    }
    std::vector<float> floats(kStepValues);
    ggml_get_type_traits(type_)->to_float(block.data(), floats.data(), kStepValues);
    return {floats.begin(), floats.end()};
  }

 private:
  void put_scales(const std::uint8_t* at) {
    auto* block = const_cast<std::uint8_t*>(at);
    const auto put = [&](int offset, float value) {
      const ggml_fp16_t bits = half_bits(value);
      std::memcpy(block + offset, &bits, 2);
    };
    if (type_ == GGML_TYPE_Q6_K) return put(208, even() / 30);
    if (type_ == GGML_TYPE_Q8_0) {
      for (int group = 0; group < 8; ++group) put(34 * group, even() / 30);
      return;
    }
    put(0, even() / 30);
    put(2, even() / 30);
  }

  ggml_type type_;
  int step_bytes_;
  std::vector<std::uint8_t> bytes_;
};

int whole_sum(const std::vector<int>& values, const Columns& columns, int column, int first,
              int n) {
  int sum = 0;
  for (int i = first; i < first + n; ++i)
    sum += values[static_cast<std::size_t>(i)] * columns.value(column, i);
  return sum;
}

// What ggml makes of a step, of one row and column, added to what there was.
float by_ggml(ggml_type type, const std::uint8_t* block, const std::vector<int>& values,
              const Columns& columns, int column, float sum) {
  if (type == GGML_TYPE_Q8_0) {
    for (int group = 0; group < 8; ++group) {
      const float whole = static_cast<float>(whole_sum(values, columns, column, 32 * group, 32));
      sum = std::fma(whole * half_float(block + 34 * group), columns.number(column, group), sum);
    }
    return sum;
  }
  if (type == GGML_TYPE_Q6_K) {
    for (int n = 0; n < 2; ++n) {
      float part = 0;
      for (int group = 4 * n; group < 4 * n + 4; ++group) {
        const auto scale = [&](int i) { return static_cast<std::int8_t>(block[192 + i]); };
        const int whole =
            whole_sum(values, columns, column, 32 * group, 16) * scale(2 * group) +
            whole_sum(values, columns, column, 32 * group + 16, 16) * scale(2 * group + 1);
        part = std::fma(static_cast<float>(whole), columns.number(column, group), part);
      }
      sum = std::fma(part, half_float(block + 208), sum);
    }
    return sum;
  }
  const std::uint8_t* packed = block + 4;
  for (int group = 0; group < 8; ++group) {
    int scale = packed[group] & 63, least = packed[(group + 4) % 12] & 63;
    if (group >= 4) {
      scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4);
      least = (packed[group + 4] >> 4) | (packed[group] >> 6 << 4);
    }
    const float of_row = rounded(half_float(block) * static_cast<float>(scale));
    const float less = rounded(-half_float(block + 2) * static_cast<float>(least));
    const float whole = static_cast<float>(whole_sum(values, columns, column, 32 * group, 32));
    sum = std::fma(of_row * columns.scale(column, group), whole, sum);
    sum = std::fma(less, columns.sum(column, group), sum);
  }
  return sum;
}

template <class Tile, int kMatrices, int kEights, int kOwn>
void check_steps(ggml_type type) {
  std::vector<Rows> matrices;
  for (int m = 0; m < kMatrices; ++m) matrices.emplace_back(type, Tile::kBlockBytes);
  float sums[32][kMatrices][kEights][4] = {};
  float expected[kMatrices][kRows][8 * kOwn] = {};
  constexpr int kMatrixBytes = kRows * Tile::kPitch;
  std::vector<std::uint8_t> stage(static_cast<std::size_t>(kMatrices * kMatrixBytes));
  for (int step = 0; step < kSteps; ++step) {
    // As a stage has it: each row from a multiple of 16 bytes on.
    for (int m = 0; m < kMatrices; ++m) {
      for (int row = 0; row < kRows; ++row) {
        const std::int64_t from = row * matrices[0].row_bytes() + Tile::offset(step);
        std::memcpy(stage.data() + m * kMatrixBytes + row * Tile::kPitch,
                    matrices[static_cast<std::size_t>(m)].row(0) + from,
                    static_cast<std::size_t>(std::min(16 * Tile::kChunks, Tile::kPitch)));
      }
    }
    std::vector<Columns> records;
    for (int e = 0; e < kOwn; ++e) records.push_back(random_columns());
    HostWarp().run(0, [&](int lane) {
      Tile::template multiply_step<kOwn>(stage.data(), kMatrixBytes, records.front().bytes, step,
                                         sums[lane]);
    });
    for (int m = 0; m < kMatrices; ++m) {
      const Rows& rows = matrices[static_cast<std::size_t>(m)];
      for (int row = 0; row < kRows; ++row) {
        const std::vector<int> values = rows.values(row, step);
        for (int column = 0; column < 8 * kOwn; ++column) {
          float& sum = expected[m][row][column];
          sum = by_ggml(type, rows.step_of(row, step), values,
                        records[static_cast<std::size_t>(column / 8)], column % 8, sum);
        }
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int m = 0; m < kMatrices; ++m) {
      for (int e = 0; e < kOwn; ++e) {
        for (int i = 0; i < 4; ++i) {
          const float& of = expected[m][lane / 4 + 8 * (i / 2)][8 * e + 2 * (lane % 4) + i % 2];
          CHECK(std::memcmp(&sums[lane][m][e][i], &of, sizeof of) == 0);
        }
      }
    }
  }
}

template <class Tile>
void check_tile(ggml_type type) {
  check_steps<Tile, 1, 1, 1>(type);
  check_steps<Tile, 1, 2, 2>(type);
  check_steps<Tile, 1, 2, 1>(type);
  check_steps<Tile, 2, 1, 1>(type);
  check_steps<Tile, 2, 3, 3>(type);
  check_steps<Tile, 1, 5, 4>(type);
  check_steps<Tile, 2, 5, 5>(type);
}

TEST(q4_k_is_ggmls) { check_tile<TwoGroups<4>>(GGML_TYPE_Q4_K); }
TEST(q5_k_is_ggmls) { check_tile<TwoGroups<5>>(GGML_TYPE_Q5_K); }
TEST(q6_k_is_ggmls) { check_tile<Q6KTile>(GGML_TYPE_Q6_K); }
TEST(q8_0_is_ggmls) { check_tile<Q80Tile>(GGML_TYPE_Q8_0); }

}  // namespace
}  // namespace tiles_test
