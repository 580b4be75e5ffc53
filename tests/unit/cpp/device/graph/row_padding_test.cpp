// Which graphs of several tokens may have rows that are no token's.
#include "device/graph/row_padding.h"

#include <ggml.h>

#include <string>

#include "check.h"
#include "graph_maker.h"

namespace row_padding_test {
namespace {

using namespace unpaced;
using unpaced::test::kValues;
using Maker = unpaced::test::GraphMaker;

ggml_tensor* rows(Maker& make, std::int64_t n) {
  return ggml_new_tensor_2d(make.context(), GGML_TYPE_F32, kValues, n);
}

std::string why(ggml_type weights, std::int64_t n_rows, std::int32_t compute = 90) {
  Maker make;
  ggml_tensor* product =
      ggml_mul_mat(make.context(), make.weight(kValues, weights), rows(make, n_rows));
  return why_no_row_padding(make.graph({product}), compute);
}

TEST(sums_of_quantised_weights_do_not_hang_on_the_number_of_rows) {
  CHECK_EQ(why(GGML_TYPE_Q8_0, 16), "");
  CHECK_EQ(why(GGML_TYPE_Q8_0, 16, 70), "sums hang on the number of rows on such a card");
}

TEST(those_of_others_do_where_there_are_several_rows) {
  CHECK_EQ(why(GGML_TYPE_F16, 16), "sums of f16 products hang on the number of rows");
  CHECK_EQ(why(GGML_TYPE_F16, 1), "");
}

TEST(so_do_products_with_what_is_no_weight) {
  Maker make;
  ggml_tensor* scores = ggml_mul_mat(make.context(), make.normed(rows(make, 16)), rows(make, 16));
  CHECK_EQ(why_no_row_padding(make.graph({scores}), 90),
           "sums of f32 products hang on the number of rows");
}

TEST(so_do_experts) {
  Maker make;
  ggml_context* c = make.context();
  ggml_tensor* experts = ggml_new_tensor_3d(c, GGML_TYPE_Q8_0, kValues, kValues, 4);
  ggml_tensor* chosen = ggml_new_tensor_2d(c, GGML_TYPE_I32, 2, 16);
  ggml_tensor* input = ggml_new_tensor_3d(c, GGML_TYPE_F32, kValues, 1, 16);
  CHECK_EQ(why_no_row_padding(make.graph({ggml_mul_mat_id(c, experts, input, chosen)}), 90),
           "experts' sums hang on the number of rows");
}

}  // namespace
}  // namespace row_padding_test
