#include "device/kernels/mat_vec/builds.h"

#include <iterator>

#include "device/kernels/rows/tensor_records.h"

namespace unpaced::mat_vec {
namespace {

// Builds for one column: those that were the fastest of some shape, or nearly so, of those that
// were measured (docs/bench/device-kernels.md), and last one for long inputs and little shared
// memory. Which comes first unmeasured, preferred() says (mat_vec.cpp).
constexpr Build kOneColumn[] = {
    {.rows = 2, .producer = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .producer = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .producer = true, .launches_at_once = 2},
    {.rows = 2, .blocks_per_multiprocessor = 2},
    {.rows = 4, .blocks_per_multiprocessor = 2},
    {.rows = 4, .launches_at_once = 2},
    {.rows = 2, .held = true, .blocks_per_multiprocessor = 2},
    {.rows = 2, .stage_bytes = 2304},
};
constexpr Build kOneColumnOfQuads[] = {
    {.rows = 2, .quads = true, .producer = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .quads = true, .producer = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .quads = true, .producer = true, .launches_at_once = 2},
    {.rows = 2, .quads = true, .producer = true, .launches_at_once = 2},
    {.rows = 1, .quads = true, .producer = true, .blocks_per_multiprocessor = 2},
    {.rows = 1, .quads = true, .producer = true, .launches_at_once = 2},
    {.rows = 2, .quads = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .quads = true, .blocks_per_multiprocessor = 2},
    {.rows = 1, .quads = true, .blocks_per_multiprocessor = 2},
    {.rows = 4, .quads = true, .launches_at_once = 2},
    {.rows = 2, .quads = true, .stage_bytes = 2304},
    {.rows = 2, .producer = true, .blocks_per_multiprocessor = 2},
};

// Builds for several: in the order of up to four, teams of as many warps as ggml has, or each warp
// alone, as of eight columns; in the order of more each warp alone.
constexpr Build several_columns(std::int32_t columns, std::int32_t blocks, std::int32_t bytes) {
  return {.rows = 4,
          .columns = columns,
          .wide = true,
          .blocks_per_multiprocessor = blocks,
          .stage_bytes = bytes};
}

}  // namespace

std::vector<Build> builds_for(const MatVec& mat_vec, const Ways& ways) {
  if (!is_quantised(mat_vec.matrices[0].format))
    return {{.rows = 2, .blocks_per_multiprocessor = 2}, {.rows = 2}};
  // One column in the order of several: what is left of those that were divided among launches.
  if (mat_vec.n_columns == 1 && mat_vec.order_columns == 1) {
    if (ways.quads) return {std::begin(kOneColumnOfQuads), std::end(kOneColumnOfQuads)};
    return {std::begin(kOneColumn), std::end(kOneColumn)};
  }
  const std::int32_t columns = mat_vec.n_columns <= 2 ? 2 : mat_vec.n_columns <= 4 ? 4 : 8;
  std::vector<Build> builds;
  if (ways.tensor && mat_vec.n_columns >= kRecordColumnsLeast) {
    for (const std::int32_t bytes : {18432, 36864})
      builds.push_back({.rows = 16,
                        .columns = 8,
                        .producer = true,
                        .compact = has_byte_records(mat_vec.n_values),
                        .tensor = true,
                        .stage_bytes = bytes});
  }
  if (mat_vec.order_columns > 4) {
    for (const std::int32_t bytes : {9216, 4608})
      builds.push_back({.rows = 4, .columns = columns, .stage_bytes = bytes});
    // With fewer ggml's kernel is the quicker one there.
    if (ways.compact && mat_vec.n_columns > 6)
      builds.push_back({.rows = 4, .columns = 8, .compact = true, .stage_bytes = 2304});
    return builds;
  }
  // A warp holds all four sums of so many rows and columns, and waits for no other one.
  if (columns == 8) {
    for (const std::int32_t bytes : {9216, 4608})
      builds.push_back({.rows = 2, .columns = 8, .stage_bytes = bytes});
    if (ways.compact)
      builds.push_back({.rows = 2, .columns = 8, .compact = true, .stage_bytes = 2304});
    return builds;
  }
  for (const std::int32_t blocks : {2, 1}) {
    for (const std::int32_t bytes : {9216, 4608})
      builds.push_back(several_columns(columns, blocks, bytes));
  }
  if (columns == 4) {
    for (const std::int32_t bytes : {9216, 4608})
      builds.push_back({.rows = 4, .columns = 4, .stage_bytes = bytes});
    return builds;
  }
  builds.push_back({.rows = 2, .columns = 2, .blocks_per_multiprocessor = 2});
  builds.push_back({.rows = 2, .columns = 2, .launches_at_once = 2});
  if (!ways.quads) return builds;
  builds.push_back({.rows = 2, .columns = 2, .quads = true, .blocks_per_multiprocessor = 2});
  builds.push_back({.rows = 2, .columns = 2, .quads = true, .launches_at_once = 2});
  return builds;
}

}  // namespace unpaced::mat_vec
