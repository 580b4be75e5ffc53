// Graphs made by hand: where they may be cut, and which phases would spoil their own values in the
// memory where the tensors lie.
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "device/graph/fusion_borders.h"
#include "device/graph/step_part.h"
#include "device/graph/step_phase.h"

namespace {

using namespace unpaced;

constexpr std::int64_t kValues = 64;

// Tensors without memory but what a test gives them.
class Maker {
 public:
  ggml_context* context() { return context_.get(); }

  ggml_tensor* weight(std::int64_t rows, ggml_type type = GGML_TYPE_Q8_0) {
    return rows == 1 ? ggml_new_tensor_1d(context(), GGML_TYPE_F32, kValues)
                     : ggml_new_tensor_2d(context(), type, kValues, rows);
  }

  ggml_tensor* activation() {
    ggml_tensor* made = ggml_new_tensor_1d(context(), GGML_TYPE_F32, kValues);
    ggml_set_input(made);
    return made;
  }

  ggml_tensor* normed(ggml_tensor* x) {
    return ggml_mul(context(), ggml_rms_norm(context(), x, 1e-5F), weight(1));
  }

  ggml_tensor* product(ggml_tensor* x, std::int64_t rows = kValues) {
    return ggml_mul_mat(context(), weight(rows), x);
  }

  StepGraph graph(std::initializer_list<ggml_tensor*> outputs) {
    ggml_cgraph* made = ggml_new_graph(context());
    for (ggml_tensor* output : outputs) ggml_build_forward_expand(made, output);
    return StepGraph({ggml_graph_nodes(made), ggml_graph_nodes(made) + ggml_graph_n_nodes(made)});
  }

 private:
  struct Freed {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };
  std::unique_ptr<ggml_context, Freed> context_{ggml_init({std::size_t{4} << 20U, nullptr, true})};
};

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

// A phase of one product, with memory for all that it touches.
struct Product {
  Maker make;
  ggml_tensor* x;
  ggml_tensor* residual;
  ggml_tensor* sum;
  std::vector<std::byte> memory;
  std::unique_ptr<StepGraph> graph;
  StepPhase phase;

  explicit Product(ggml_type type) : memory(4096) {
    x = make.activation();
    residual = make.activation();
    ggml_tensor* product = ggml_mul_mat(make.context(), make.weight(kValues, type), x);
    sum = ggml_add(make.context(), product, residual);
    for (ggml_tensor* tensor : {x, residual, product, sum}) tensor->data = at(0);
    x->data = at(0);
    residual->data = at(512);
    sum->data = at(1024);
    graph = std::make_unique<StepGraph>(make.graph({sum}));
    phase.nodes = {0, graph->size()};
    phase.kind = PhaseKind::kProduct;
    const StepPart part = find_parts(*graph).at(0);
    phase.launches = {RoundLaunch{x}, ProductLaunch{{std::get<ProductPart>(part.detail)}}};
  }

  void* at(std::size_t offset) { return memory.data() + offset; }
  std::string conflict() const { return memory_conflict(*graph, phase); }
};

TEST(a_product_may_take_the_place_of_its_residual_and_of_a_row_that_is_rounded) {
  Product product(GGML_TYPE_Q8_0);
  CHECK_EQ(product.conflict(), "");
  product.sum->data = product.residual->data;
  CHECK_EQ(product.conflict(), "");
  product.sum->data = product.x->data;
  CHECK_EQ(product.conflict(), "");
}

TEST(a_product_must_not_lie_across_its_residual) {
  Product product(GGML_TYPE_Q8_0);
  product.sum->data = product.at(512 + 32);
  CHECK(!product.conflict().empty());
}

TEST(a_product_must_not_lie_where_its_floats_are_read) {
  Product product(GGML_TYPE_F16);
  product.phase.launches.erase(product.phase.launches.begin());
  CHECK_EQ(product.conflict(), "");
  product.sum->data = product.x->data;
  CHECK(!product.conflict().empty());
}

TEST(a_row_must_not_be_rounded_after_its_place_was_taken) {
  Product product(GGML_TYPE_Q8_0);
  product.sum->data = product.x->data;
  std::ranges::reverse(product.phase.launches);
  CHECK(!product.conflict().empty());
}

TEST(values_of_the_same_phase_are_not_in_each_others_way) {
  // What nobody else reads lies in memory of its own, wherever the graph has it.
  Maker make;
  ggml_tensor* x = make.activation();
  std::vector<std::byte> memory(4096);
  ggml_tensor* gate = make.product(x);
  ggml_tensor* up = make.product(x);
  ggml_tensor* both = ggml_swiglu_split(make.context(), gate, up);
  ggml_tensor* down = make.product(both);
  for (ggml_tensor* tensor : {x, gate, up, both, down}) tensor->data = memory.data();
  down->data = memory.data() + 2048;
  const StepGraph graph = make.graph({down});
  const std::vector<StepPart> parts = find_parts(graph);
  REQUIRE(parts.size() == 2);
  StepPhase phase{{0, graph.size()}, PhaseKind::kFeedForward, {}, ""};
  phase.launches = {RoundLaunch{x}, GatedLaunch{std::get<GatedPart>(parts[0].detail)},
                    RoundLaunch{both}, ProductLaunch{{std::get<ProductPart>(parts[1].detail)}}};
  CHECK_EQ(memory_conflict(graph, phase), "");
}

}  // namespace

CHECK_MAIN()
