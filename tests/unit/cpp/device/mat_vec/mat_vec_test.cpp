// The mat-vec kernels' work (device/kernels/mat_vec/block/product.h) against ggml's order, bit by
// bit: every format, lengths with tails, all builds, adversarial scales. A block of the GPU's
// threads runs on fibers, so a wrong index, order or tail shows here, without a GPU.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "device/kernels/mat_vec/plan.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/small_blocks.h"
#include "ggml_order.h"
#include "host_block.h"
#include "host_launch.h"
#include "product_case.h"
#include "random_blocks.h"

namespace mat_vec_test {
namespace {

using namespace unpaced;
using namespace unpaced::test;
namespace mv = unpaced::mat_vec;

constexpr int kWarps = 4;

// --- data ---------------------------------------------------------------------------------------

// --- runs ---------------------------------------------------------------------------------------

constexpr Card kCard = {.compute = 90, .n_multiprocessors = 2, .shared_bytes_max = 232448};

// Computes the product by one build; false: shared memory does not suffice for it.
template <class Format>
bool compute(const MatVec& mat_vec, const mv::Build& build, const Card& card) {
  mv::FormatFacts facts = mv::facts_of<Format>();
  if constexpr (mv::HasQuads<Format>) {
    if (build.quads) facts = mv::facts_of<mv::Quad<Format>>();
    if (build.compact) facts = mv::facts_of<mv::Compact<Format>>();
  }
  if constexpr (kHasTensor<Format>) {
    if (build.tensor)
      facts = build.compact ? mv::tensor_facts_of<Format, ByteRecord>()
                            : mv::tensor_facts_of<Format, HalfRecord>();
  }
  const std::optional<mv::Plan> plan =
      mv::plan_mat_vec(mat_vec, facts, mv::ggml_warps(mat_vec, card), build, card);
  if (!plan) return false;
  run_build<Format, kWarps>(build, *plan);
  return true;
}

bool compute(const MatVec& mat_vec, const mv::Build& build, const Card& card = kCard) {
  switch (mat_vec.matrices[0].format) {
    case WeightFormat::kQ4_K:
      return compute<mv::Q4K>(mat_vec, build, card);
    case WeightFormat::kQ5_K:
      return compute<mv::Q5K>(mat_vec, build, card);
    case WeightFormat::kQ6_K:
      return compute<mv::Q6K>(mat_vec, build, card);
    case WeightFormat::kQ8_0:
      return compute<mv::Q8_0>(mat_vec, build, card);
    case WeightFormat::kQ4_0:
      return compute<mv::Q4_0>(mat_vec, build, card);
    case WeightFormat::kQ5_0:
      return compute<mv::Q5_0>(mat_vec, build, card);
    case WeightFormat::kIq4Xs:
      return compute<mv::Iq4Xs>(mat_vec, build, card);
    case WeightFormat::kMxfp4:
      return compute<mv::Mxfp4>(mat_vec, build, card);
    default:
      return false;
  }
}

void expect_equal(const Product& product, const mv::Build& build, std::uint32_t seed) {
  Data data(product, seed);
  REQUIRE(compute(data.mat_vec(), build));
  const int n = data.differing();
  if (n == 0) return;
  report_failure(__FILE__, __LINE__,
                 std::string(product.format->name) + " K " + std::to_string(product.n_values) +
                     " columns " + std::to_string(product.n_columns) + " rows " +
                     std::to_string(build.rows) + (build.held ? " held" : "") + ": " +
                     std::to_string(n) + " outputs differ");
}

constexpr mv::Build kOneColumn[] = {{.rows = 2},
                                    {.rows = 4},
                                    {.rows = 2, .held = true},
                                    {.rows = 2, .producer = true},
                                    {.rows = 2, .quads = true},
                                    {.rows = 4, .quads = true},
                                    {.rows = 2, .quads = true, .producer = true},
                                    {.rows = 4, .quads = true, .producer = true}};

// Formats without quads have such builds as the others.

// Blocks of 32 have other lengths than those of 256.
std::vector<int> lengths(const GgmlFormat& format) {
  if (format.block_values == 256) return {256, 512, 768, 1280, 2048, 2816, 4096};
  return {32, 96, 256, 480, 896, 1024, 1696, 2048, 4096};
}

TEST(one_column_has_ggmls_bits) {
  std::uint32_t seed = 1;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int n_values : lengths(format)) {
      for (const mv::Build& build : kOneColumn) {
        for (const bool wild : {false, true})
          expect_equal({.format = &format, .n_values = n_values, .rows = {37}, .wild = wild}, build,
                       ++seed);
      }
    }
  }
}

TEST(a_row_alone_has_ggmls_bits) {
  std::uint32_t seed = 900;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int n_values : lengths(format)) {
      // Others are taken by twos.
      const bool quads =
          format.format == WeightFormat::kQ4_K || format.format == WeightFormat::kQ5_K ||
          format.format == WeightFormat::kQ6_K || format.format == WeightFormat::kQ8_0;
      for (const bool producer : {false, true})
        expect_equal({.format = &format, .n_values = n_values, .rows = {37}, .wild = producer},
                     {.rows = quads ? 1 : 2, .quads = quads, .producer = producer}, ++seed);
    }
  }
}

TEST(each_of_several_columns_has_the_bits_of_one) {
  std::uint32_t seed = 1000;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int n_values : {lengths(format)[2], lengths(format)[5], 2048}) {
      for (const int n_columns : {2, 3, 4, 5, 8}) {
        const int columns = n_columns <= 2 ? 2 : n_columns <= 4 ? 4 : 8;
        const Product product = {.format = &format,
                                 .n_values = n_values,
                                 .rows = {23},
                                 .n_columns = n_columns,
                                 .wild = n_columns == 3};
        if (columns < 8)
          expect_equal(product, {.rows = 4, .columns = columns, .wide = true}, ++seed);
        expect_equal(product, {.rows = columns == 4 ? 4 : 2, .columns = columns}, ++seed);
        if (columns == 2) expect_equal(product, {.rows = 2, .columns = 2, .quads = true}, ++seed);
        if (columns == 8) expect_equal(product, {.rows = 2, .columns = 8, .compact = true}, ++seed);
      }
    }
  }
}

// A prompt's: ggml's kernel for five columns has another order, and so has each of the launches
// that columns with long rows are divided among.
TEST(several_columns_have_the_bits_of_so_many) {
  std::uint32_t seed = 1500;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int n_values : {lengths(format)[2], 2048}) {
      for (int order = 2; order <= 8; ++order) {
        for (const int columns : {2, 4, 8}) {
          if (columns > 4 && order <= 4) continue;
          for (const MatVecEnd end : {MatVecEnd::kPlain, MatVecEnd::kAdded, MatVecEnd::kGlu}) {
            if (end != MatVecEnd::kPlain && columns != 4) continue;
            Product product = {.format = &format,
                               .n_values = n_values,
                               .rows = {23},
                               .n_columns = std::min(order, columns),
                               .order_columns = order,
                               .end = end,
                               .wild = order % 2 == 1};
            if (end == MatVecEnd::kGlu) product.rows = {23, 23};
            expect_equal(product, {.rows = 4, .columns = columns, .wide = order <= 4}, ++seed);
          }
        }
      }
    }
  }
}

// A product by tensor cores.
void expect_equal_by_tiles(const GgmlFormat& format, int n_values, int order, MatVecEnd end,
                           std::uint32_t seed) {
  const bool is_aligned = format.block_bytes % 16 == 0;
  Product product = {.format = &format,
                     .n_values = n_values,
                     .rows = {37},
                     .n_columns = order == 1 ? 7 : order,
                     .order_columns = order,
                     .end = end,
                     .wild = seed % 4 < 2,
                     .misaligned = is_aligned ? 0 : 6,
                     .has_records = seed % 2 == 0};
  if (end == MatVecEnd::kGlu) product.rows = {37, 37};
  if (end == MatVecEnd::kPlain) product.rows = {30, 9, 16};
  expect_equal(product,
               {.rows = 16,
                .columns = 8,
                .producer = true,
                .compact = has_byte_records(n_values),
                .tensor = true,
                .stage_bytes = seed % 8 < 4 ? 18432 : 36864},
               seed);
}

// Rows and columns that are no multiples of a tile's, rows of all lengths, both of ggml's orders;
// what rounds rows has made records of every second product's inputs. Those of long rows are of
// bytes.
TEST(tensor_cores_have_the_bits_of_one_column_and_of_so_many) {
  std::uint32_t seed = 1800;
  for (const GgmlFormat& format : ggml_formats()) {
    const bool is_small = format.format == WeightFormat::kQ8_0;
    if (format.block_values == 256 ? format.format == WeightFormat::kIq4Xs : !is_small) continue;
    for (const int order : {1, 5, 8}) {
      for (const int n_values : is_small ? std::vector{32, 96, 896, 1696, 4096}
                                         : std::vector{256, 768, 1280, 2816, 4096}) {
        for (const MatVecEnd end : {MatVecEnd::kPlain, MatVecEnd::kAdded, MatVecEnd::kGlu})
          expect_equal_by_tiles(format, n_values, order, end, ++seed);
      }
      for (const int n_values : {8448, 14336})
        expect_equal_by_tiles(format, n_values, order, MatVecEnd::kAdded, ++seed);
    }
  }
}

TEST(long_rows_are_fetched_in_slices) {
  std::uint32_t seed = 2000;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int stage_bytes : {1000, 3000, 9000}) {
      for (const int rows : {2, 4}) {
        for (const bool quads : {false, true}) {
          for (const bool producer : {false, true})
            expect_equal(
                {.format = &format, .n_values = 14336, .rows = {9}},
                {.rows = rows, .quads = quads, .producer = producer, .stage_bytes = stage_bytes},
                ++seed);
        }
      }
      expect_equal({.format = &format, .n_values = 9216, .rows = {9}, .n_columns = 2},
                   {.rows = 4, .columns = 2, .wide = true, .stage_bytes = stage_bytes}, ++seed);
    }
  }
}

TEST(three_matrices_are_one_launch) {
  std::uint32_t seed = 3000;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const mv::Build& build : kOneColumn)
      expect_equal(
          {.format = &format, .n_values = 1024, .rows = {40, 9, 11}, .end = MatVecEnd::kAdded},
          build, ++seed);
    expect_equal({.format = &format, .n_values = 1024, .rows = {40, 9, 40}, .n_columns = 4},
                 {.rows = 4, .columns = 4, .wide = true}, ++seed);
  }
}

TEST(gate_and_up_meet) {
  std::uint32_t seed = 4000;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const mv::Build& build : kOneColumn) {
      expect_equal({.format = &format, .n_values = 768, .rows = {33, 33}, .end = MatVecEnd::kGlu},
                   build, ++seed);
    }
    for (const int columns : {2, 4, 8}) {
      expect_equal({.format = &format,
                    .n_values = 768,
                    .rows = {33, 33},
                    .n_columns = columns,
                    .end = MatVecEnd::kGlu},
                   {.rows = columns == 8 ? 2 : 4,
                    .columns = columns,
                    .wide = columns < 8,
                    .compact = columns == 8},
                   ++seed);
      expect_equal({.format = &format,
                    .n_values = 768,
                    .rows = {33, 33},
                    .n_columns = columns,
                    .end = MatVecEnd::kGlu},
                   {.rows = columns == 4 ? 4 : 2, .columns = columns, .quads = columns == 2},
                   ++seed);
    }
  }
}

// Each block has rows of one, and that one's vector alone.
TEST(experts_share_the_blocks_evenly) {
  const GgmlFormat& format = ggml_formats().front();
  const Card card = {.compute = 90, .n_multiprocessors = 6, .shared_bytes_max = 232448};
  Data data(
      {.format = &format, .n_values = 768, .rows = {160}, .n_experts = 8, .expert_has_input = true},
      1);
  const auto plan = mv::plan_mat_vec(data.mat_vec(), mv::facts_of<mv::Q4K>(), kWarps,
                                     {.rows = 2, .blocks_per_multiprocessor = 2}, card);
  REQUIRE(plan.has_value());
  CHECK_EQ(plan->n_thread_blocks, 8);
  CHECK(plan->task.has_one_expert);
  CHECK_EQ(plan->task.n_inputs, 1);
  run_build<mv::Q4K, kWarps>({.rows = 2}, *plan);
  CHECK_EQ(data.differing(), 0);
}

TEST(few_rows_are_spread_over_the_multiprocessors) {
  const GgmlFormat& format = ggml_formats().front();
  const Card card = {.compute = 90, .n_multiprocessors = 6, .shared_bytes_max = 232448};
  const auto n_blocks = [&](int rows) {
    Data data({.format = &format, .n_values = 768, .rows = {rows}}, 1);
    return mv::plan_mat_vec(data.mat_vec(), mv::facts_of<mv::Q4K>(), kWarps,
                            {.rows = 2, .blocks_per_multiprocessor = 2}, card)
        ->n_thread_blocks;
  };
  CHECK_EQ(n_blocks(6), 3);
  CHECK_EQ(n_blocks(24), 6);
  CHECK_EQ(n_blocks(112), 7);
  CHECK_EQ(n_blocks(4000), 12);
}

TEST(experts_are_chosen_by_an_earlier_kernel) {
  std::uint32_t seed = 5000;
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int rows : {2, 4}) {
      for (const bool own : {false, true}) {
        expect_equal({.format = &format,
                      .n_values = 768,
                      .rows = {13},
                      .end = MatVecEnd::kAdded,
                      .n_experts = 4,
                      .expert_has_input = own},
                     {.rows = rows, .quads = own, .producer = rows == 2}, ++seed);
      }
      expect_equal({.format = &format,
                    .n_values = 768,
                    .rows = {13, 13},
                    .end = MatVecEnd::kGlu,
                    .n_experts = 3},
                   {.rows = rows}, ++seed);
    }
  }
}

TEST(rows_may_begin_anywhere) {
  std::uint32_t seed = 6000;
  for (const GgmlFormat& format : ggml_formats()) {
    const int unit = format.format == WeightFormat::kMxfp4                               ? 1
                     : format.format == WeightFormat::kIq4Xs                             ? 8
                     : format.block_values == 32 || format.format == WeightFormat::kQ6_K ? 2
                                                                                         : 16;
    for (int shift = unit; shift < 16; shift += unit) {
      for (const bool quads : {false, true})
        expect_equal({.format = &format, .n_values = 1280, .rows = {11}, .misaligned = shift},
                     {.rows = 2, .quads = quads}, ++seed);
      expect_equal({.format = &format, .n_values = 1280, .rows = {11}, .misaligned = shift},
                   {.rows = 2, .held = true}, ++seed);
    }
  }
}

}  // namespace
}  // namespace mat_vec_test
