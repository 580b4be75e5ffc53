// Which products of many columns are ours, and what their launches are asked for.
#include "device/kernels/mat_mat.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/rows/batch_records.h"

namespace {

struct Launch {
  std::string format;
  unpaced::mat_mat::Task task;
  bool is_gated;
};
std::vector<Launch> launches;

}  // namespace

namespace unpaced::mat_mat {

void launch_q4_k(const Task& task, bool is_gated, const Card&, CUstream_st*) {
  launches.push_back({"Q4_K", task, is_gated});
}
void launch_q5_k(const Task& task, bool is_gated, const Card&, CUstream_st*) {
  launches.push_back({"Q5_K", task, is_gated});
}
void launch_q6_k(const Task& task, bool is_gated, const Card&, CUstream_st*) {
  launches.push_back({"Q6_K", task, is_gated});
}
void launch_q8_0(const Task& task, bool is_gated, const Card&, CUstream_st*) {
  launches.push_back({"Q8_0", task, is_gated});
}
void launch_q4_k_and_q6_k(const Task& task, const Card&, CUstream_st*) {
  launches.push_back({"Q4_K and Q6_K", task, false});
}
void launch_q5_k_and_q6_k(const Task& task, const Card&, CUstream_st*) {
  launches.push_back({"Q5_K and Q6_K", task, false});
}

}  // namespace unpaced::mat_mat

namespace mat_mat_test {
namespace {

using namespace unpaced;

const Card kCard = {
    .compute = 90, .code = 90, .n_multiprocessors = 132, .shared_bytes_max = 232448};
alignas(16) std::uint8_t weights[16];

MatVecMatrix matrix_of(WeightFormat format, int n_rows, int n_values) {
  const int step_bytes = format == WeightFormat::kQ6_K   ? 210
                         : format == WeightFormat::kQ5_K ? 176
                                                         : 144;
  return {.weights = weights,
          .format = format,
          .n_rows = n_rows,
          .row_bytes = n_values / 256 * step_bytes,
          .out_stride = n_rows};
}

MatVec product_of(int n_values, std::vector<MatVecMatrix> matrices, int n_columns = 16) {
  MatVec made;
  made.n_matrices = static_cast<int>(matrices.size());
  std::ranges::copy(matrices, made.matrices.begin());
  made.n_values = n_values;
  made.n_columns = n_columns;
  made.order_columns = n_columns;
  return made;
}

constexpr WeightFormat kQ4 = WeightFormat::kQ4_K, kQ6 = WeightFormat::kQ6_K;

TEST(a_product_that_is_not_ours_says_why) {
  const auto why = [](const MatVec& product, const Card& card = kCard) {
    return why_no_mat_mat(product, card);
  };
  const MatVec known = product_of(4096, {matrix_of(kQ4, 4096, 4096)});
  CHECK_EQ(why(known), "");
  CHECK_EQ(why(product_of(4096, {matrix_of(kQ4, 4096, 4096)}, 8)),
           "the columns are too few or too many");
  CHECK_EQ(why(product_of(4096, {matrix_of(kQ4, 4096, 4096)}, 128)), "");
  CHECK_EQ(why(product_of(4096, {matrix_of(kQ4, 4096, 4096)}, 129)),
           "the columns are too few or too many");
  CHECK_EQ(why(product_of(4096, {matrix_of(WeightFormat::kF16, 4096, 4096)})),
           "many columns of such weights");
  CHECK_EQ(why(product_of(896, {matrix_of(kQ4, 4096, 896)})), "its rows are no whole steps");
  // Blocks of 210 bytes: a row's end has to be a multiple of sixteen.
  CHECK_EQ(why(product_of(2048, {matrix_of(kQ6, 4096, 2048)})), "");
  CHECK_EQ(why(product_of(2304, {matrix_of(kQ6, 4096, 2304)})), "its rows are no whole steps");
  MatVec apart = known;
  apart.matrices[0].row_bytes += 144;
  CHECK_EQ(why(apart), "its weights are not aligned");
  CHECK_EQ(why(product_of(4096, {matrix_of(kQ4, 262'145, 4096)})), "a matrix has too many rows");
  Card other = kCard;
  other.compute = 120;
  CHECK_EQ(why(known, other), "many columns on such a card");
  other = kCard;
  other.code = 75;
  CHECK_EQ(why(known, other), "many columns on such a card");
  // Of compute 8.6: two matrices do not fit.
  other = kCard;
  other.shared_bytes_max = 101376;
  CHECK_EQ(why(known, other), "");
  MatVec two = product_of(4096, {matrix_of(kQ4, 4096, 4096), matrix_of(kQ4, 4096, 4096)});
  two.end = MatVecEnd::kGlu;
  CHECK_EQ(why(two, other), "the card has too little shared memory for many columns");
  CHECK_EQ(why(two), "");
  // With code of its own they do, up to 32 columns, and one matrix up to 80.
  other.code = 86;
  two.n_columns = two.order_columns = 32;
  CHECK_EQ(why(two, other), "");
  two.n_columns = two.order_columns = 33;
  CHECK_EQ(why(two, other), "the card has too little shared memory for many columns");
  CHECK_EQ(why(product_of(4096, {matrix_of(kQ4, 4096, 4096)}, 80), other), "");
  other.code = 90;
  // Of compute 8.0: two matrices of larger steps and most columns do not.
  two = product_of(4096, {matrix_of(kQ6, 4096, 4096), matrix_of(kQ6, 4096, 4096)}, 80);
  two.end = MatVecEnd::kGlu;
  CHECK_EQ(why(two), "");
  other.shared_bytes_max = 166912;
  CHECK_EQ(why(two, other), "the card has too little shared memory for many columns");
  two.n_columns = two.order_columns = 64;
  CHECK_EQ(why(two, other), "");
  // Of 128 each of two launches has 64, of 88 one has 48.
  two.n_columns = two.order_columns = 128;
  CHECK_EQ(why(two, other), "");
  MatVec gated = product_of(4096, {matrix_of(kQ4, 4096, 4096), matrix_of(kQ4, 2048, 4096)});
  gated.end = MatVecEnd::kGlu;
  CHECK_EQ(why(gated), "gate and up are not two matrices of one shape");
}

constexpr WeightFormat kQ5 = WeightFormat::kQ5_K;

TEST(each_format_has_a_launch) {
  launches.clear();
  MatVec product = product_of(
      4096, {matrix_of(kQ4, 4096, 4096), matrix_of(kQ4, 1024, 4096), matrix_of(kQ5, 1024, 4096)},
      20);
  product.next_is_ours = false;
  enqueue_mat_mat(product, {}, kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{2});
  const mat_mat::Task &first = launches[0].task, &second = launches[1].task;
  CHECK_EQ(launches[0].format, "Q4_K");
  CHECK_EQ(first.n_streams, 2);
  CHECK_EQ(first.n_first, 2);
  CHECK_EQ(first.n_columns, 20);
  CHECK_EQ(first.n_eights, 3);
  CHECK_EQ(first.matrices[1].row_bytes, 16 * 144);
  CHECK_EQ(first.matrices[1].row_pitch, 144);
  CHECK_EQ(first.matrices[1].first_tile, 32);
  CHECK(first.next_is_ours);
  CHECK_EQ(launches[1].format, "Q5_K");
  CHECK_EQ(second.n_streams, 1);
  CHECK_EQ(second.matrices[0].row_bytes, 16 * 176);
  CHECK_EQ(second.matrices[0].row_pitch, 176);
  CHECK_EQ(second.matrices[0].first_tile, 0);
  CHECK(!second.next_is_ours);
}

TEST(only_the_last_launch_is_before_what_is_not_ours) {
  launches.clear();
  // Q5_K's is launched last, wherever it stands.
  MatVec product = product_of(4096, {matrix_of(kQ5, 4096, 4096), matrix_of(kQ4, 1024, 4096)}, 20);
  product.next_is_ours = false;
  enqueue_mat_mat(product, {}, kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{2});
  CHECK(launches[0].task.next_is_ours && !launches[1].task.next_is_ours);
}

TEST(some_pairs_of_formats_have_one) {
  for (const WeightFormat of_keys : {kQ4, kQ6}) {
    launches.clear();
    MatVec product = product_of(4096, {matrix_of(kQ4, 4096, 4096), matrix_of(of_keys, 1024, 4096),
                                       matrix_of(kQ6, 512, 4096)});
    enqueue_mat_mat(product, {}, kCard, nullptr);
    CHECK_EQ(launches.size(), std::size_t{1});
    CHECK_EQ(launches[0].format, "Q4_K and Q6_K");
    const mat_mat::Task& task = launches[0].task;
    CHECK_EQ(task.n_streams, 3);
    CHECK_EQ(task.n_first, of_keys == kQ4 ? 2 : 1);
    CHECK_EQ(task.matrices[1].row_bytes, 16 * (of_keys == kQ4 ? 144 : 210));
    CHECK_EQ(task.matrices[2].row_bytes, 16 * 210);
    CHECK_EQ(task.matrices[2].row_pitch, 240);
    CHECK_EQ(task.matrices[2].first_tile, 40);
  }
  // The first format's come first, wherever they stand.
  launches.clear();
  enqueue_mat_mat(product_of(4096, {matrix_of(kQ6, 1024, 4096), matrix_of(kQ5, 4096, 4096)}), {},
                  kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{1});
  CHECK_EQ(launches[0].format, "Q5_K and Q6_K");
  CHECK_EQ(launches[0].task.n_first, 1);
  CHECK_EQ(launches[0].task.matrices[0].n_rows, 4096);
  CHECK_EQ(launches[0].task.matrices[1].n_rows, 1024);
}

TEST(gate_and_up_are_one_stream) {
  launches.clear();
  MatVec product = product_of(4096, {matrix_of(kQ4, 14336, 4096), matrix_of(kQ4, 14336, 4096)});
  product.end = MatVecEnd::kGlu;
  product.glu = GluKind::kGeglu;
  enqueue_mat_mat(product, {}, kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{1});
  CHECK(launches[0].is_gated);
  CHECK_EQ(launches[0].task.n_streams, 1);
  CHECK(launches[0].task.glu == GluKind::kGeglu);
}

TEST(gate_and_up_of_most_columns_have_two_launches) {
  alignas(16) static std::uint8_t records[16];
  static float out[1], added[1];
  MatVec product = product_of(4096, {matrix_of(kQ4, 14336, 4096), matrix_of(kQ4, 14336, 4096)}, 83);
  product.end = MatVecEnd::kGlu;
  product.input_records = records;
  product.matrices[1].out = out;
  product.matrices[1].added = added;
  product.matrices[1].added_stride = 7;
  product.next_is_ours = false;
  launches.clear();
  enqueue_mat_mat(product, {}, kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{2});
  const mat_mat::Task &first = launches[0].task, &second = launches[1].task;
  CHECK_EQ(first.n_columns, 48);
  CHECK_EQ(first.n_eights, 6);
  CHECK_EQ(second.n_columns, 35);
  CHECK_EQ(second.n_eights, 5);
  // Both have the same records, of eleven eights a step.
  CHECK_EQ(first.record_step_bytes, 11 * BatchRecord::kBytes);
  CHECK_EQ(second.record_step_bytes, 11 * BatchRecord::kBytes);
  CHECK(first.records == records && second.records == records + 6 * BatchRecord::kBytes);
  CHECK(first.matrices[0].out == nullptr && second.matrices[0].out == nullptr);
  CHECK(second.matrices[1].out == out + std::int64_t{48} * 14336);
  CHECK(first.matrices[1].added == added && second.matrices[1].added == added + 48 * 7);
  CHECK(first.next_is_ours && !second.next_is_ours);
  // One matrix has one.
  launches.clear();
  enqueue_mat_mat(product_of(4096, {matrix_of(kQ4, 4096, 4096)}, 128), {}, kCard, nullptr);
  CHECK_EQ(launches.size(), std::size_t{1});
  CHECK_EQ(launches[0].task.n_eights, 16);
}

TEST(sums_have_room_for_every_part) {
  // Of three matrices, two sums of 128 rows a multiprocessor.
  CHECK_EQ(mat_mat_sum_bytes(16, kCard), std::size_t{3} * 132 * 2 * 128 * 16 * sizeof(float));
  CHECK_EQ(mat_mat_sum_bytes(17, kCard), std::size_t{3} * 132 * 2 * 128 * 24 * sizeof(float));
}

}  // namespace
}  // namespace mat_mat_test
