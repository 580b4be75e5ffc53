// For which mat-vecs a build that was chosen serves (device/phases/mat_vec_choices.h).
#include "device/phases/mat_vec_choices.h"

#include "check.h"

namespace mat_vec_choices_test {
namespace {

using namespace unpaced;

// Of one matrix, in the order of so many columns.
MatVec product_of(std::int32_t n_columns, std::int32_t n_rows = 1024) {
  MatVec mat_vec;
  mat_vec.n_values = 2048;
  mat_vec.n_matrices = 1;
  mat_vec.n_columns = mat_vec.order_columns = n_columns;
  mat_vec.matrices[0].format = WeightFormat::kQ4_K;
  mat_vec.matrices[0].n_rows = n_rows;
  return mat_vec;
}

TEST(numbers_of_columns_share_the_builds_of_the_next_one_that_has_some) {
  MatVecChoices choices;
  choices.choose(product_of(1), 1);
  choices.choose(product_of(2), 2);
  choices.choose(product_of(4), 3);
  choices.choose(product_of(8), 4);
  const std::int32_t expected[] = {1, 2, 3, 3, 4, 4, 4, 4};
  for (std::int32_t n = 1; n <= 8; ++n) CHECK_EQ(choices.of(product_of(n)), expected[n - 1]);
  choices.choose(product_of(3), 5);
  CHECK_EQ(choices.of(product_of(4)), 5);
}

TEST(another_shape_has_a_choice_of_its_own) {
  MatVecChoices choices;
  choices.choose(product_of(2), 2);
  CHECK_EQ(choices.of(product_of(2, 512)), 0);
  MatVec gated = product_of(2);
  gated.end = MatVecEnd::kGlu;
  CHECK_EQ(choices.of(gated), 0);
}

TEST(columns_with_the_bits_of_one_have_a_choice_of_their_own) {
  MatVecChoices choices;
  MatVec alone = product_of(4);
  alone.order_columns = 1;
  choices.choose(product_of(1), 1);
  choices.choose(product_of(4), 2);
  CHECK_EQ(choices.of(alone), 0);
  choices.choose(alone, 3);
  CHECK_EQ(choices.of(product_of(1)), 1);
  CHECK_EQ(choices.of(product_of(4)), 2);
  alone.n_columns = 3;
  CHECK_EQ(choices.of(alone), 3);
}

}  // namespace
}  // namespace mat_vec_choices_test
