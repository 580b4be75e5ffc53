// Parts' sums of tiles, in whatever order multiprocessors come to them: what is written is what
// ggml's two kernels make of them (mmq.cuh: mul_mat_q and mul_mat_q_stream_k_fixup).
#include "device/kernels/mat_mat/tile_end.cuh"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "device/kernels/mat_mat/cursor.h"

namespace tile_end_test {
namespace {

using namespace unpaced;
using namespace unpaced::mat_mat;
using unpaced::test::HostWarp;

struct Shape {
  int n_rows, n_values, n_multiprocessors, n_columns;
};
// Tiles of several parts, parts of several tiles, parts that have none, and tiles that are parts.
constexpr Shape kShapes[] = {{300, 2048, 7, 19},  {512, 1024, 3, 9},  {128, 512, 9, 16},
                             {130, 4096, 23, 16}, {260, 256, 12, 17}, {640, 256, 5, 32},
                             {130, 768, 9, 40},   {300, 1024, 7, 61}, {260, 512, 5, 80}};

// Numbers of several magnitudes, which sums in another order would round otherwise.
float sum_of(int matrix, int part, int tile, int row, int column) {
  std::uint64_t x = 1;
  for (const int i : {matrix, part, tile, row, column})
    x = (x + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15U;
  x ^= x >> 29U;
  x *= 0xbf58476d1ce4e5b9U;
  const float even = static_cast<float>(x >> 40U) / (1U << 23U) - 1.0F;
  return std::ldexp(even, static_cast<int>(x % 8));
}

template <int kMatrices, int kEights>
class Product {
 public:
  Product(const Shape& shape, bool adds)
      : shape_(shape),
        sums_(std::size_t{2} * kMatVecMatrices * static_cast<std::size_t>(shape.n_multiprocessors) *
              kTileRows * static_cast<std::size_t>(8 * record_eights(shape.n_columns))),
        arrivals_(1000, 0),
        added_(cells()),
        made_(kStreams * cells(), 9e9F) {
    for (std::size_t i = 0; i < added_.size(); ++i)
      added_[i] = static_cast<float>(i % 13) / 7.0F - 1.0F;
    for (int m = 0; m < kStreams * kMatrices; ++m) {
      TaskMatrix& matrix = task_.matrices[m];
      matrix.added = adds ? added_.data() : nullptr;
      matrix.out = made_.data() + static_cast<std::size_t>(m / kMatrices) * cells();
      matrix.out_stride = matrix.added_stride = shape.n_rows;
      matrix.n_rows = shape.n_rows;
      matrix.division = divide(shape.n_rows, shape.n_values, shape.n_multiprocessors);
      matrix.first_tile = m * matrix.division.n_tiles;
    }
    task_.n_streams = kStreams;
    task_.n_columns = shape.n_columns;
    task_.n_eights = record_eights(shape.n_columns);
    task_.sums = sums_.data();
    task_.arrivals = arrivals_.data();
    task_.glu = GluKind::kGeglu;
  }

  // The multiprocessors' parts, one after the other in any order.
  void run(std::mt19937& random) {
    gridDim.x = static_cast<unsigned>(shape_.n_multiprocessors);
    std::vector<int> order(static_cast<std::size_t>(shape_.n_multiprocessors));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::ranges::shuffle(order, random);
    for (const int block : order) {
      for (Cursor at(task_, block, shape_.n_multiprocessors); !at.is_done(); at.step()) {
        if (at.ends_sums()) end(at);
      }
    }
  }

  void check(bool adds) const {
    for (int stream = 0; stream < kStreams; ++stream) check(adds, stream);
    for (const std::uint32_t counter : arrivals_) CHECK_EQ(counter, 0U);
  }

 private:
  // Gate and up are one; else several matrices follow one another.
  static constexpr int kStreams = kMatrices == 1 ? kMatVecMatrices : 1;

  void check(bool adds, int stream) const {
    const Division& division = task_.matrices[0].division;
    const float* made = made_.data() + static_cast<std::size_t>(stream) * cells();
    for (int row = 0; row < shape_.n_rows; ++row) {
      const PartsOfTile parts(division, row / kTileRows);
      for (int column = 0; column < shape_.n_columns; ++column) {
        const auto at = static_cast<std::size_t>(column) * static_cast<std::size_t>(shape_.n_rows) +
                        static_cast<std::size_t>(row);
        float values[kMatrices];
        for (int m = 0; m < kMatrices; ++m) {
          values[m] = by_ggml(parts, stream + m, row, column);
          if (adds) values[m] += added_[at];
        }
        float expected = values[0];
        if constexpr (kMatrices == 2)
          expected = mat_vec::gated(values[1], values[0], task_.glu, task_.glu_limit);
        CHECK(std::memcmp(made + at, &expected, sizeof expected) == 0);
      }
    }
  }

  [[nodiscard]] std::size_t cells() const {
    return static_cast<std::size_t>(shape_.n_rows) * static_cast<std::size_t>(shape_.n_columns);
  }

  void end(const Cursor& at) {
    for (int w = 0; w < kWarps; ++w) {
      HostWarp().run(static_cast<unsigned>(32 * w), [&](int lane) {
        float sums[kMatrices][kEights][4];
        for (int m = 0; m < kMatrices; ++m) {
          for (int e = 0; e < kEights; ++e) {
            for (int i = 0; i < 4; ++i) {
              const int row = at.tile() * kTileRows + 16 * (w % kSlices) + lane / 4 + 8 * (i / 2);
              const int column = 8 * (w / kSlices * kEights + e) + 2 * (lane % 4) + i % 2;
              sums[m][e][i] = sum_of(at.stream() + m, at.part(), at.tile(), row, column);
            }
          }
        }
        TileEnd<kMatrices, kEights>(task_, at.stream(), at.tile()).add_part(at.part(), sums);
      });
    }
  }

  static float by_ggml(const PartsOfTile& parts, int matrix, int row, int column) {
    const auto of = [&](int i) { return sum_of(matrix, parts[i], row / kTileRows, row, column); };
    float earlier = 0;
    for (int i = parts.n() - 2; i >= 0; --i) earlier += of(i);
    return parts.n() == 1 ? of(0) : of(parts.n() - 1) + earlier;
  }

  const Shape shape_;
  Task task_ = {};
  std::vector<float> sums_;
  std::vector<std::uint32_t> arrivals_;
  std::vector<float> added_, made_;
};

template <int kMatrices>
void check_all(bool adds) {
  std::mt19937 random(5);
  for (const Shape& shape : kShapes) {
    const auto check = [&]<int kEights>() {
      Product<kMatrices, kEights> product(shape, adds);
      // Twice: counters are zero again behind a launch.
      for (int turn = 0; turn < 2; ++turn) {
        product.run(random);
        product.check(adds);
      }
    };
    [&]<int... kFew>(std::integer_sequence<int, kFew...>) {
      ((warp_eights(shape.n_columns) == kFew + 1 ? check.template operator()<kFew + 1>() : void()),
       ...);
    }(std::make_integer_sequence<int, 5>());
  }
}

TEST(tiles_are_ggmls_sums) { check_all<1>(false); }
TEST(what_is_added_comes_last) { check_all<1>(true); }
TEST(gate_and_up_meet_in_the_activation) {
  check_all<2>(false);
  check_all<2>(true);
}

}  // namespace
}  // namespace tile_end_test
