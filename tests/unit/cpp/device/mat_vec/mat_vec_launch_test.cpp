// What enqueue_mat_vec() makes of a product (device/kernels/mat_vec.h), its launches on the host:
// formats together in one launch, columns that are divided among launches, every variant, and what
// is refused.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/mat_vec/formats.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/small_blocks.h"
#include "host_launch.h"
#include "product_case.h"

namespace mat_vec_launch_test {
namespace {

int n_launches = 0;
unpaced::mat_vec::Build last;  // what was launched last
std::string launched;          // of weights that are not quantised: what

using namespace unpaced;
using namespace unpaced::test;

constexpr Card kCard = {.compute = 90,
                        .code = 90,
                        .n_multiprocessors = 3,
                        .shared_bytes_max = 232448,
                        .dependents_start_early = true};

const GgmlFormat& named(const std::string& name) {
  for (const GgmlFormat& format : ggml_formats()) {
    if (name == format.name) return format;
  }
  REQUIRE(false);
  return ggml_formats().front();
}

template <class Format>
void launch(const mat_vec::Build& build, const mat_vec::Plan& plan) {
  ++n_launches;
  last = build;
  run_build<Format, kGgmlWarps>(build, plan);
}

// Each with as many of the launch's blocks as it is given.
template <class First, class Second>
void launch_two(const mat_vec::Build& build, const mat_vec::PlanPair& plans) {
  ++n_launches;
  last = build;
  run_build<First, kGgmlWarps>(build, plans.first);
  run_build<Second, kGgmlWarps>(build, plans.second);
}

// Computes the product by all variants; how many launches each took.
int check_variants(const Product& product, std::uint32_t seed, const Card& card = kCard) {
  Data data(product, seed);
  MatVec made = data.mat_vec();
  CHECK_EQ(why_no_mat_vec(made, card), std::string());
  const std::int32_t n = n_mat_vec_variants(made, card);
  CHECK(n > 0);
  n_launches = 0;
  for (made.variant = 0; made.variant < n; ++made.variant) {
    data.forget();
    enqueue_mat_vec(made, card, nullptr);
    CHECK_EQ(data.differing(), 0);
  }
  return n_launches / n;
}

TEST(all_variants_have_the_same_bits) {
  std::uint32_t seed = 1;
  for (const GgmlFormat& format : ggml_formats()) {
    CHECK_EQ(check_variants({.format = &format, .n_values = 2048, .rows = {21}}, ++seed), 1);
    CHECK_EQ(check_variants(
                 {.format = &format, .n_values = 2048, .rows = {21, 21}, .end = MatVecEnd::kGlu},
                 ++seed),
             1);
    CHECK_EQ(
        check_variants({.format = &format, .n_values = 2048, .rows = {9}, .n_columns = 7}, ++seed),
        1);
  }
}

TEST(a_prompts_columns_have_the_bits_of_so_many) {
  const GgmlFormat &q4 = named("Q4_K"), &q6 = named("Q6_K");
  std::uint32_t seed = 50;
  for (int n = 2; n <= 8; ++n) {
    Product product = {.format = &q4, .n_values = 2048, .rows = {21}, .n_columns = n};
    product.order_columns = n;
    CHECK_EQ(check_variants(product, ++seed), 1);
    product.formats = {&q4, &q4, &q6};
    product.rows = {40, 11, 13};
    CHECK_EQ(check_variants(product, ++seed), 1);
  }
  // Long rows: the columns in two launches, or more, of the same order; where what lanes have in
  // common is stored once, or tensor cores multiply, in one.
  Card older = kCard;
  older.code = 80;
  for (const Card& card : {kCard, older}) {
    for (const int n : {5, 8}) {
      for (const GgmlFormat* format : {&q4, &q6, &named("Q4_0")}) {
        for (const int order : {1, n}) {
          const bool is_tensor = card.code == 90 && format != &named("Q4_0");
          const bool is_compact = format != &named("Q4_0") && (order == 1 || n > 6);
          const int asked = is_tensor || is_compact ? 1 : 2;
          Product product = {.format = format, .n_values = 14336, .rows = {5}, .n_columns = n};
          product.order_columns = order;
          Data data(product, ++seed);
          CHECK_EQ(n_mat_vec_launches(data.mat_vec(), card), asked);
          CHECK_EQ(check_variants(product, ++seed, card), asked);
        }
      }
    }
  }
  // Another kernel of ggml's takes so many there.
  Product product = {.format = &q4, .n_values = 2048, .rows = {21}, .n_columns = 6};
  product.order_columns = 6;
  Data data(product, ++seed);
  CHECK(!why_no_mat_vec(data.mat_vec(),
                        {.compute = 120, .n_multiprocessors = 3, .shared_bytes_max = 101376})
             .empty());
}

// Kernels for two formats read records of halves alone, and longer rows have records of bytes.
TEST(two_formats_of_long_rows_are_not_multiplied_by_tensor_cores) {
  std::uint32_t seed = 90;
  for (const int n_values : {8192, 8448}) {
    Product product = {
        .formats = {&named("Q4_K"), &named("Q6_K")}, .n_values = n_values, .rows = {5, 3}};
    product.n_columns = 8;
    product.has_records = true;
    Data data(product, ++seed);
    MatVec made = data.mat_vec();
    bool is_tensor = false;
    for (made.variant = 0; made.variant < n_mat_vec_variants(made, kCard); ++made.variant) {
      enqueue_mat_vec(made, kCard, nullptr);
      is_tensor = is_tensor || last.tensor;
      CHECK_EQ(data.differing(), 0);
    }
    CHECK_EQ(is_tensor, n_values == 8192);
  }
}

TEST(values_of_more_bits_join_queries_and_keys) {
  const GgmlFormat &q4 = named("Q4_K"), &q5 = named("Q5_K"), &q6 = named("Q6_K"),
                   &iq4 = named("IQ4_XS");
  std::uint32_t seed = 100;
  for (const auto& formats : std::vector<std::vector<const GgmlFormat*>>{
           {&q4, &q4, &q6}, {&q6, &q4}, {&q5, &q6, &q5}, {&iq4, &q5}, {&q6, &q6, &q4}}) {
    std::vector<int> rows = {40, 11, 13};
    rows.resize(formats.size());
    for (const int n_columns : {1, 2, 5}) {
      for (const MatVecEnd end : {MatVecEnd::kPlain, MatVecEnd::kAdded}) {
        CHECK_EQ(check_variants({.formats = formats,
                                 .n_values = 1280,
                                 .rows = rows,
                                 .n_columns = n_columns,
                                 .end = end},
                                ++seed),
                 1);
      }
    }
  }
}

// What is launched unmeasured.
std::string first_build(const Product& product) {
  Data data(product, 400);
  enqueue_mat_vec(data.mat_vec(), kCard, nullptr);
  CHECK_EQ(data.differing(), 0);
  return std::to_string(last.rows) + " rows, " + std::to_string(last.blocks_per_multiprocessor) +
         " blocks" + (last.launches_at_once > 1 ? " beside the next launch's" : "") +
         (last.held ? ", held" : "");
}

TEST(four_rows_come_first_where_they_fill_the_card) {
  // Of three multiprocessors, with eight teams a block.
  const GgmlFormat &q4 = named("Q4_K"), &q6 = named("Q6_K");
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {64}}),
           std::string("2 rows, 2 blocks"));
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {96}}),
           std::string("4 rows, 2 blocks"));
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {64, 32, 32}}),
           std::string("4 rows, 1 blocks beside the next launch's"));
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {192}}),
           std::string("4 rows, 2 blocks"));
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {96, 96}, .end = MatVecEnd::kGlu}),
           std::string("4 rows, 2 blocks"));
  CHECK_EQ(first_build({.formats = {&q4, &q6}, .n_values = 512, .rows = {96, 96}}),
           std::string("2 rows, 2 blocks"));
  // Of several columns the order is the builds' own.
  CHECK_EQ(first_build({.format = &q4, .n_values = 512, .rows = {40}, .n_columns = 2}),
           std::string("4 rows, 2 blocks"));
}

// A plan asks how many builds there are before values have places.
TEST(as_many_builds_without_an_input) {
  for (const GgmlFormat& format : ggml_formats()) {
    for (const int n_values : {1024, 14336}) {
      Data data({.format = &format, .n_values = n_values, .rows = {9}}, 500);
      MatVec made = data.mat_vec();
      const std::int32_t n = n_mat_vec_variants(made, kCard);
      made.input_q8 = nullptr;
      CHECK_EQ(n_mat_vec_variants(made, kCard), n);
    }
  }
}

TEST(long_inputs_fit_into_a_smaller_card) {
  const Card small = {.compute = 86, .n_multiprocessors = 2, .shared_bytes_max = 101376};
  CHECK_EQ(check_variants({.format = &named("Q4_K"), .n_values = 14336, .rows = {9}}, 202, small),
           1);
}

TEST(columns_that_do_not_fit_are_divided) {
  // A card with little shared memory, and long inputs.
  const Card small = {.compute = 86, .n_multiprocessors = 2, .shared_bytes_max = 101376};
  CHECK(check_variants({.format = &named("Q4_K"), .n_values = 9216, .rows = {9}, .n_columns = 8},
                       200, small) > 1);
  CHECK(check_variants({.format = &named("Q4_K"),
                        .n_values = 9216,
                        .rows = {9},
                        .n_columns = 5,
                        .end = MatVecEnd::kAdded},
                       201, small) > 1);
}

std::string why(const Product& product, const Card& card = kCard) {
  Data data(product, 300);
  return why_no_mat_vec(data.mat_vec(), card);
}

TEST(what_ggml_would_sum_otherwise_is_refused) {
  const GgmlFormat &q4 = named("Q4_K"), &q8 = named("Q8_0"), &q6 = named("Q6_K"),
                   &mxfp4 = named("MXFP4");
  const Product fine = {.format = &q4, .n_values = 512, .rows = {4}};
  CHECK_EQ(why(fine), std::string());
  // Two warps a row there, and up to eight here.
  const std::string other = "ggml sums rows in another order on this card";
  CHECK_EQ(
      why(fine, {.compute = 75, .code = 75, .n_multiprocessors = 2, .shared_bytes_max = 65536}),
      other);
  CHECK_EQ(
      why(fine, {.compute = 121, .code = 121, .n_multiprocessors = 2, .shared_bytes_max = 101376}),
      other);
  // The same of the older card's code on a newer one.
  CHECK_EQ(
      why(fine, {.compute = 90, .code = 75, .n_multiprocessors = 2, .shared_bytes_max = 232448}),
      other);
  CHECK_EQ(why({.format = &q8, .n_values = 512, .rows = {4}},
               {.compute = 75, .code = 75, .n_multiprocessors = 2, .shared_bytes_max = 65536}),
           std::string());
  CHECK_EQ(why({.formats = {&q4, &mxfp4}, .n_values = 512, .rows = {4, 4}}),
           std::string("no kernel of ours has these formats"));
  CHECK_EQ(why({.formats = {&q4, &q6}, .n_values = 512, .rows = {4, 4}, .end = MatVecEnd::kGlu}),
           std::string("gate and up are not two matrices of one shape"));
  // Of such experts ggml's blocks write one another's outputs.
  CHECK_EQ(why({.format = &q4, .n_values = 512, .rows = {6}, .n_experts = 2}),
           std::string("its experts' rows do not come in fours"));
  CHECK_EQ(why({.format = &q4, .n_values = 512, .rows = {8}, .n_experts = 2}), std::string());
  CHECK_EQ(why({.format = &q4, .n_values = 512, .rows = {4}, .misaligned = 4}),
           std::string("its weights are not aligned"));
  CHECK_EQ(why({.format = &q4, .n_values = 1024 * 256, .rows = {1}}),
           std::string("its input does not fit into the card's shared memory"));
}

std::string launched_for(WeightFormat format, MatVecEnd end) {
  static std::uint8_t weights[16];
  static float values[64];
  MatVec made;
  made.n_matrices = end == MatVecEnd::kGlu ? 2 : 1;
  made.matrices.fill({.weights = weights, .format = format, .n_rows = 4, .row_bytes = 256});
  made.n_values = 64;
  made.end = end;
  made.input = values;
  CHECK_EQ(why_no_mat_vec(made, kCard), std::string());
  launched.clear();
  enqueue_mat_vec(made, kCard, nullptr);
  return launched;
}

TEST(halves_are_summed_in_f32_where_gate_and_up_are_one_launch) {
  CHECK_EQ(launched_for(WeightFormat::kF16, MatVecEnd::kPlain), std::string("F16"));
  CHECK_EQ(launched_for(WeightFormat::kF16, MatVecEnd::kAdded), std::string("F16"));
  CHECK_EQ(launched_for(WeightFormat::kF16, MatVecEnd::kGlu), std::string("F16 in F32"));
  CHECK_EQ(launched_for(WeightFormat::kBf16, MatVecEnd::kGlu), std::string("BF16"));
  CHECK_EQ(launched_for(WeightFormat::kF32, MatVecEnd::kGlu), std::string("F32"));
}

}  // namespace
}  // namespace mat_vec_launch_test

namespace unpaced::mat_vec {

using mat_vec_launch_test::launch;
using mat_vec_launch_test::launch_two;
using mat_vec_launch_test::launched;

void launch_q4_k(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q4K>(b, p);
}
void launch_q5_k(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q5K>(b, p);
}
void launch_q6_k(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q6K>(b, p);
}
void launch_q8_0(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q8_0>(b, p);
}
void launch_q4_0(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q4_0>(b, p);
}
void launch_q5_0(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Q5_0>(b, p);
}
void launch_iq4_xs(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Iq4Xs>(b, p);
}
void launch_mxfp4(const Build& b, const Plan& p, const Card& /*card*/, CUstream_st* /*stream*/) {
  launch<Mxfp4>(b, p);
}
// What these compute float_mat_vec_test has.
void launch_f32(const Build& /*b*/, const Plan& /*p*/, const Card& /*card*/,
                CUstream_st* /*stream*/) {
  launched = "F32";
}
void launch_f16(const Build& /*b*/, const Plan& /*p*/, const Card& /*card*/,
                CUstream_st* /*stream*/) {
  launched = "F16";
}
void launch_f16_of_glu(const Build& /*b*/, const Plan& /*p*/, const Card& /*card*/,
                       CUstream_st* /*stream*/) {
  launched = "F16 in F32";
}
void launch_bf16(const Build& /*b*/, const Plan& /*p*/, const Card& /*card*/,
                 CUstream_st* /*stream*/) {
  launched = "BF16";
}
void launch_q4_k_and_q6_k(const Build& b, const PlanPair& p, const Card& /*card*/,
                          CUstream_st* /*stream*/) {
  launch_two<Q4K, Q6K>(b, p);
}
void launch_q5_k_and_q6_k(const Build& b, const PlanPair& p, const Card& /*card*/,
                          CUstream_st* /*stream*/) {
  launch_two<Q5K, Q6K>(b, p);
}
void launch_iq4_xs_and_q5_k(const Build& b, const PlanPair& p, const Card& /*card*/,
                            CUstream_st* /*stream*/) {
  launch_two<Iq4Xs, Q5K>(b, p);
}

}  // namespace unpaced::mat_vec
