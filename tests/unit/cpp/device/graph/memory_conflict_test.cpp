// Graphs made by hand: which phases would spoil their own values in the memory where the tensors
// lie.
#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "check.h"
#include "device/graph/step_part.h"
#include "device/graph/step_phase.h"
#include "graph_maker.h"

namespace memory_conflict_test {
namespace {

using namespace unpaced;
using unpaced::test::kValues;
using Maker = unpaced::test::GraphMaker;

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
}  // namespace memory_conflict_test
