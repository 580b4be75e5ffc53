// How products of many columns are divided, beside ggml's own division (mmq.cuh: mul_mat_q and
// mul_mat_q_stream_k_fixup) written as it is there, and where rounded rows lie.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "check.h"
#include "device/kernels/mat_mat/cursor.h"
#include "device/kernels/mat_mat/task.h"
#include "device/kernels/rows/batch_records.h"

namespace division_test {
namespace {

using namespace unpaced;
using namespace unpaced::mat_mat;

struct Sum {
  int part;
  int first, end;  // steps of the tile
  bool operator==(const Sum&) const = default;
};
// Of each tile its parts' sums, in the order of steps.
using Sums = std::map<int, std::vector<Sum>>;

struct Shape {
  int n_rows;
  int n_values;
  int n_multiprocessors;
};

const std::vector<Shape> kShapes = {
    {128, 256, 132},     {64, 4096, 132},    {517, 2048, 132},   {1024, 4096, 132},
    {2048, 8192, 132},   {4096, 4096, 132},  {6144, 4096, 132},  {4096, 14336, 132},
    {14336, 4096, 132},  {16896, 256, 132},  {20001, 768, 132},  {128256, 4096, 132},
    {152064, 5120, 108}, {128256, 2048, 80}, {15616, 4096, 132}, {129, 14336, 7},
};

// Blocks of 256 values, which are a step each.
Sums by_ggml(const Shape& shape) {
  const std::int64_t n_tiles = (shape.n_rows + 127) / 128, n_steps = shape.n_values / 256;
  const std::int64_t n_rounds = (n_tiles + shape.n_multiprocessors - 1) / shape.n_multiprocessors;
  const bool tiles = 100 * n_tiles / (shape.n_multiprocessors * n_rounds) >= 90;
  const std::int64_t n_blocks = tiles ? n_tiles : shape.n_multiprocessors;
  Sums sums;
  for (std::int64_t block = 0; block < n_blocks; ++block) {
    std::int64_t k = block * n_tiles * n_steps / n_blocks;
    const std::int64_t stop = (block + 1) * n_tiles * n_steps / n_blocks;
    while (k < stop) {
      const std::int64_t begin = k % n_steps;
      const std::int64_t end = std::min(n_steps, begin + stop - k);
      sums[static_cast<int>(k / n_steps)].push_back(
          {static_cast<int>(block), static_cast<int>(begin), static_cast<int>(end)});
      k += end - begin;
    }
  }
  return sums;
}

Task task_of(const Shape& shape, int n_matrices) {
  Task task = {};
  task.n_streams = n_matrices;
  for (int m = 0; m < n_matrices; ++m)
    task.matrices[m].division = divide(shape.n_rows, shape.n_values, shape.n_multiprocessors);
  return task;
}

TEST(a_products_parts_are_ggmls) {
  for (const Shape& shape : kShapes) {
    const Task task = task_of(shape, 2);
    Sums sums[2];
    for (int block = 0; block < shape.n_multiprocessors; ++block) {
      int begin = -1;
      for (Cursor at(task, block, shape.n_multiprocessors); !at.is_done(); at.step()) {
        if (begin < 0) begin = at.step_of_tile();
        if (!at.ends_sums()) continue;
        sums[at.stream()][at.tile()].push_back({at.part(), begin, at.step_of_tile() + 1});
        begin = -1;
      }
      CHECK_EQ(begin, -1);
    }
    for (Sums& found : sums) {
      for (auto& [tile, parts] : found)
        std::ranges::sort(parts, {}, [](const Sum& sum) { return sum.first; });
      CHECK(found == by_ggml(shape));
    }
  }
}

TEST(a_tiles_parts_are_found_by_its_steps) {
  for (const Shape& shape : kShapes) {
    const Division division = divide(shape.n_rows, shape.n_values, shape.n_multiprocessors);
    for (const auto& [tile, sums] : by_ggml(shape)) {
      // What the kernel counts arrivals by, and whose sums it adds up.
      const PartsOfTile parts(division, tile);
      REQUIRE(parts.n() == static_cast<int>(sums.size()));
      for (int i = 0; i < parts.n(); ++i)
        CHECK_EQ(parts[i], sums[static_cast<std::size_t>(i)].part);
      CHECK_EQ(parts.last(), sums.back().part);
    }
  }
}

TEST(each_value_of_a_record_has_a_place_of_its_own) {
  std::set<int> taken;
  const auto take = [&](int at, int n_bytes) {
    CHECK(at >= 0 && at + n_bytes <= BatchRecord::kBytes);
    CHECK_EQ(at % n_bytes, 0);
    for (int i = 0; i < n_bytes; ++i) CHECK(taken.insert(at + i).second);
  };
  for (int column = 0; column < kRecordColumns; ++column) {
    for (int group = 0; group < BatchRecord::kValues / kQ8Values; ++group) {
      for (int i = 0; i < kQ8Values; ++i) take(BatchRecord::value_at(column, group, i), 1);
      take(BatchRecord::scale_at(column, group), 2);
      take(BatchRecord::sum_at(column, group), 2);
      take(BatchRecord::float_at(column, group), 4);
    }
  }
  CHECK_EQ(static_cast<int>(taken.size()), BatchRecord::kBytes);
}

}  // namespace
}  // namespace division_test
