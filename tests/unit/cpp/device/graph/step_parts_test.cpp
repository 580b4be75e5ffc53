// Graphs made by hand: where they may be cut, and what one kernel computes.
#include <ggml.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "check.h"
#include "device/graph/fusion_borders.h"
#include "device/graph/step_part.h"
#include "graph_maker.h"

namespace step_parts_test {
namespace {

using namespace unpaced;
using unpaced::test::kValues;
using Maker = unpaced::test::GraphMaker;

// The operations of the nodes, with a bar where the graph may be cut.
std::string cuts(const StepGraph& graph) {
  const std::vector<bool> borders = fusion_borders(graph);
  std::string text;
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    if (i > 0) text += borders[static_cast<std::size_t>(i)] ? " | " : " ";
    text += ggml_op_name(graph.node(i)->op);
  }
  return text;
}

TEST(a_norm_is_not_cut_from_its_weight) {
  Maker make;
  ggml_tensor* x = make.activation();
  CHECK_EQ(cuts(make.graph({make.product(make.normed(x))})), "RMS_NORM MUL | MUL_MAT");
  ggml_tensor* sum = ggml_add(make.context(), make.normed(x), x);
  CHECK_EQ(cuts(make.graph({make.product(sum)})), "RMS_NORM MUL ADD | MUL_MAT");
}

TEST(a_product_is_not_cut_from_what_is_added) {
  Maker make;
  ggml_tensor* x = make.activation();
  ggml_tensor* residual = make.activation();
  ggml_tensor* sum = ggml_add(make.context(), make.product(x), residual);
  CHECK_EQ(cuts(make.graph({make.product(sum)})), "MUL_MAT ADD | MUL_MAT");
}

TEST(gate_and_up_are_not_cut_from_their_product) {
  Maker make;
  ggml_tensor* x = make.activation();
  ggml_tensor* both = ggml_swiglu_split(make.context(), make.product(x), make.product(x));
  CHECK_EQ(cuts(make.graph({make.product(both)})), "MUL_MAT MUL_MAT GLU | MUL_MAT");
  ggml_tensor* by_itself = ggml_add(make.context(), make.product(x), x);
  CHECK_EQ(cuts(make.graph({make.product(x), by_itself})), "MUL_MAT | MUL_MAT ADD");
}

TEST(positions_are_not_cut_from_the_row_of_the_cache) {
  Maker make;
  ggml_context* c = make.context();
  ggml_tensor* heads = ggml_reshape_3d(c, make.activation(), kValues / 2, 2, 1);
  ggml_tensor* position = ggml_new_tensor_1d(c, GGML_TYPE_I32, 1);
  ggml_tensor* turned = ggml_rope(c, heads, position, kValues / 2, GGML_ROPE_TYPE_NEOX);
  ggml_tensor* cache = ggml_new_tensor_2d(c, GGML_TYPE_F16, kValues, 8);
  ggml_tensor* row = ggml_new_tensor_1d(c, GGML_TYPE_I64, 1);
  ggml_tensor* flat = ggml_view_2d(c, turned, kValues, 1, kValues * sizeof(float), 0);
  CHECK_EQ(cuts(make.graph({ggml_set_rows(c, cache, flat, row)})), "RESHAPE | ROPE VIEW SET_ROWS");
}

TEST(a_capped_row_and_several_sums_are_not_cut) {
  Maker make;
  ggml_context* c = make.context();
  ggml_tensor* x = make.activation();
  ggml_tensor* capped = ggml_scale(c, ggml_tanh(c, ggml_scale(c, make.product(x), 0.5F)), 2.0F);
  CHECK_EQ(cuts(make.graph({capped})), "MUL_MAT | SCALE UNARY SCALE");
  ggml_tensor* sums = ggml_add(c, ggml_add(c, x, make.weight(1)), make.weight(1));
  CHECK_EQ(cuts(make.graph({make.product(sums)})), "ADD ADD | MUL_MAT");
  // The first goes with the product.
  ggml_tensor* biased = ggml_add(c, ggml_add(c, make.product(x), make.weight(1)), x);
  CHECK_EQ(cuts(make.graph({biased})), "MUL_MAT ADD | ADD");
}

TEST(experts_are_chosen_and_added_up_in_one_piece) {
  Maker make;
  ggml_context* c = make.context();
  constexpr std::int64_t kExperts = 8;
  ggml_tensor* x = make.activation();
  ggml_tensor* probabilities = ggml_soft_max(c, make.product(x, kExperts));
  ggml_tensor* chosen = ggml_argsort_top_k(c, probabilities, 2);
  ggml_tensor* weights =
      ggml_get_rows(c, ggml_reshape_3d(c, probabilities, 1, kExperts, 1), chosen);
  ggml_tensor* matrices = ggml_new_tensor_3d(c, GGML_TYPE_Q8_0, kValues, kValues, kExperts);
  ggml_tensor* rows = ggml_reshape_3d(c, x, kValues, 1, 1);
  ggml_tensor* each = ggml_mul_mat_id(c, matrices, rows, chosen);
  ggml_tensor* weighted = ggml_mul(c, each, weights);
  ggml_tensor* first = ggml_view_2d(c, weighted, kValues, 1, weighted->nb[2], 0);
  ggml_tensor* second = ggml_view_2d(c, weighted, kValues, 1, weighted->nb[2], weighted->nb[1]);
  ggml_tensor* next = make.product(ggml_add(c, first, second));
  const std::string text = cuts(make.graph({weights, next}));
  // The views behind belong to it, as far as anybody can tell.
  const std::string choice = "MUL_MAT | SOFT_MAX RESHAPE ARGSORT VIEW GET_ROWS RESHAPE | ";
  CHECK_EQ(text.substr(0, choice.size()), choice);
  const std::string sum = "MUL_MAT_ID | MUL VIEW VIEW ADD | MUL_MAT";
  CHECK(text.ends_with(sum));
}

// The choice of the last row of `n` rows, of product and residual, and their sum.
std::vector<StepPart> chosen_row(Maker& make, std::int64_t n, ggml_tensor*& residual,
                                 ggml_tensor*& sum) {
  ggml_context* c = make.context();
  const auto rows = [&] {
    ggml_tensor* made = ggml_new_tensor_2d(c, GGML_TYPE_F32, kValues, n);
    ggml_set_input(made);
    return made;
  };
  ggml_tensor* chosen = ggml_new_tensor_1d(c, GGML_TYPE_I32, 1);
  ggml_set_input(chosen);
  residual = rows();
  ggml_tensor* product = ggml_mul_mat(c, make.weight(kValues), rows());
  sum = ggml_add(c, ggml_get_rows(c, product, chosen), ggml_get_rows(c, residual, chosen));
  return find_parts(make.graph({sum}));
}

// What the experts' products become: each times its weight, all of them added up in this order, and
// the residual, if there is one.
StepGraph summed_experts(Maker& make, const std::vector<std::size_t>& order, bool has_residual,
                         bool is_shared = false) {
  ggml_context* c = make.context();
  const auto n = static_cast<std::int64_t>(order.size());
  ggml_tensor* experts = ggml_new_tensor_3d(c, GGML_TYPE_F32, kValues, n, 1);
  ggml_tensor* products = ggml_mul(c, experts, ggml_new_tensor_3d(c, GGML_TYPE_F32, 1, n, 1));
  const auto row = [&](std::size_t i) {
    return ggml_view_2d(c, products, kValues, 1, products->nb[2], i * products->nb[1]);
  };
  ggml_tensor* sum = row(order[0]);
  for (std::size_t i = 1; i < order.size(); ++i) sum = ggml_add(c, sum, row(order[i]));
  if (has_residual) sum = ggml_add(c, sum, make.activation());
  ggml_tensor* norm = make.normed(sum);
  return is_shared ? make.graph({norm, ggml_relu(c, products)}) : make.graph({norm});
}

const ExpertSumPart* sum_in(const std::vector<StepPart>& parts) {
  for (const StepPart& part : parts) {
    if (const auto* sum = std::get_if<ExpertSumPart>(&part.detail)) return sum;
  }
  return nullptr;
}

TEST(experts_are_summed_in_their_order_with_the_residual) {
  Maker make;
  const StepGraph graph = summed_experts(make, {0, 1, 2, 3}, true);
  const std::vector<StepPart> parts = find_parts(graph);
  REQUIRE(parts.size() == 2U);
  const ExpertSumPart* sum = sum_in(parts);
  REQUIRE(sum != nullptr);
  CHECK(sum->out == std::get<NormPart>(parts[1].detail).input);
  CHECK_EQ(sum->experts->ne[1], 4);
  CHECK_EQ(ggml_nelements(sum->weights), 4);
}

TEST(other_sums_of_experts_are_ggmls) {
  Maker make;
  CHECK(sum_in(find_parts(summed_experts(make, {0, 2, 1, 3}, true))) == nullptr);
  CHECK(sum_in(find_parts(summed_experts(make, {0, 1, 2, 3}, false))) == nullptr);
  CHECK(sum_in(find_parts(summed_experts(make, {0, 1, 2, 3}, true, true))) == nullptr);
  const std::vector<std::size_t> many = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  CHECK(sum_in(find_parts(summed_experts(make, many, true))) == nullptr);
}

enum class Choice {
  kShares,
  kNormalised,
  kScaled,
  kBiased,
  kWorst,
  kSharesReadElsewhere,
  kChosenReadElsewhere
};

// The experts of one token's 64, as llama.cpp's build_moe_ffn() chooses them.
StepGraph chosen_experts(Maker& make, Choice choice) {
  constexpr std::int64_t kExperts = 64;
  constexpr std::int32_t kChosen = 4;
  ggml_context* c = make.context();
  ggml_tensor* logits = ggml_new_tensor_2d(c, GGML_TYPE_F32, kExperts, 1);
  ggml_tensor* shares = ggml_soft_max(c, logits);
  ggml_tensor* rows = ggml_reshape_3d(c, shares, 1, kExperts, 1);
  ggml_tensor* judged = choice == Choice::kBiased ? ggml_add(c, shares, logits) : shares;
  ggml_tensor* chosen = ggml_argsort_top_k(c, judged, kChosen);
  if (choice == Choice::kWorst)
    chosen = ggml_view_2d(c, chosen->src[0], kChosen, 1, chosen->nb[1], 60 * sizeof(std::int32_t));
  ggml_tensor* weights = ggml_get_rows(c, rows, chosen);
  ggml_tensor* shares_of_chosen = weights;
  if (choice == Choice::kNormalised || choice == Choice::kChosenReadElsewhere) {
    weights = ggml_reshape_2d(c, weights, kChosen, 1);
    weights = ggml_div(c, weights, ggml_clamp(c, ggml_sum_rows(c, weights), 0.5F, HUGE_VALF));
  }
  if (choice == Choice::kScaled) weights = ggml_scale(c, weights, 2.0F);
  ggml_tensor* read = ggml_relu(c, weights);
  if (choice == Choice::kSharesReadElsewhere) return make.graph({read, ggml_relu(c, shares)});
  if (choice == Choice::kChosenReadElsewhere)
    return make.graph({read, ggml_relu(c, shares_of_chosen)});
  return make.graph({read});
}

const ExpertChoicePart* choice_in(const std::vector<StepPart>& parts) {
  return std::get_if<ExpertChoicePart>(&parts.front().detail);
}

TEST(experts_are_chosen_by_one_part) {
  for (const Choice choice : {Choice::kShares, Choice::kNormalised}) {
    Maker make;
    const StepGraph graph = chosen_experts(make, choice);
    const std::vector<StepPart> parts = find_parts(graph);
    const ExpertChoicePart* part = choice_in(parts);
    REQUIRE(part != nullptr);
    REQUIRE(parts.size() == 2U);  // and who reads the weights
    CHECK_EQ(part->n_chosen, 4);
    CHECK_EQ(part->normalises, choice == Choice::kNormalised);
    CHECK_EQ(part->least_sum, choice == Choice::kNormalised ? 0.5F : 0.0F);
    CHECK(part->experts->op == GGML_OP_ARGSORT);
    CHECK(origin(graph.node(graph.size() - 1)->src[0]) == part->out);
  }
}

TEST(other_choices_of_experts_are_ggmls) {
  for (const Choice choice : {Choice::kScaled, Choice::kBiased, Choice::kWorst,
                              Choice::kSharesReadElsewhere, Choice::kChosenReadElsewhere}) {
    Maker make;
    const StepGraph graph = chosen_experts(make, choice);
    CHECK(choice_in(find_parts(graph)) == nullptr);
  }
}

TEST(a_choice_among_one_row_is_a_residuals) {
  Maker make;
  ggml_tensor* residual = nullptr;
  ggml_tensor* sum = nullptr;
  const std::vector<StepPart> parts = chosen_row(make, 1, residual, sum);
  REQUIRE(parts.size() == 1);
  const auto* part = std::get_if<ProductPart>(&parts.front().detail);
  REQUIRE(part != nullptr);
  CHECK(part->added == residual);
  CHECK(part->out == sum);
  CHECK(parts.front().nodes == (NodeRange{0, 4}));
  // Of two rows it is a choice.
  CHECK_EQ(chosen_row(make, 2, residual, sum).size(), 4U);
}

}  // namespace
}  // namespace step_parts_test
