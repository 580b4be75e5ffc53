#include "device/graph/expert_choice.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace unpaced {
namespace {

float parameter(const ggml_tensor* node, std::size_t i) {
  float value = 0;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(node->op_params) + i * sizeof value,
              sizeof value);
  return value;
}

bool is_plain_softmax(const ggml_tensor* node) {
  return node->op == GGML_OP_SOFT_MAX && node->src[1] == nullptr && node->src[2] == nullptr &&
         is_contiguous_f32(node->src[0]) && ggml_nrows(node) == 1 && parameter(node, 0) == 1.0F &&
         parameter(node, 1) == 0.0F;
}

bool is_descending(const ggml_tensor* node) { return node->op_params[0] == GGML_SORT_ORDER_DESC; }

// The nodes that compute, one after the other.
class Walk {
 public:
  Walk(const StepGraph& graph, std::int32_t end) : graph_(graph), end_(end) {}

  // The next one, if its operation is this one and its first source the other's values.
  const ggml_tensor* take(ggml_op op, const ggml_tensor* source) {
    const ggml_tensor* node = graph_.next_if(end_, op);
    if (node == nullptr || origin(node->src[0]) != source) return nullptr;
    end_ = graph_.next_computing(end_) + 1;
    return node;
  }
  [[nodiscard]] std::int32_t end() const noexcept { return end_; }

 private:
  const StepGraph& graph_;
  std::int32_t end_;
};

bool are_inner(const StepGraph& graph, const NodeRange& nodes,
               std::initializer_list<const ggml_tensor*> values) {
  return std::ranges::none_of(values, [&](const ggml_tensor* value) {
    return value != nullptr && graph.is_read_outside(value, nodes);
  });
}

}  // namespace

std::optional<ExpertChoicePart> find_expert_choice(const StepGraph& graph, std::int32_t i) {
  const ggml_tensor* shares = graph.node(i);
  if (!is_plain_softmax(shares)) return {};
  Walk walk(graph, i + 1);
  const ggml_tensor* sorted = walk.take(GGML_OP_ARGSORT, shares);
  if (sorted == nullptr || !is_descending(sorted)) return {};
  const ggml_tensor* chosen = walk.take(GGML_OP_GET_ROWS, shares);
  if (chosen == nullptr) return {};
  const ggml_tensor* numbers = chosen->src[1];
  const bool are_first = origin(numbers) == sorted && numbers->view_offs == 0 &&
                         ggml_nrows(numbers) == 1 && chosen->ne[0] == 1;
  if (!are_first) return {};
  ExpertChoicePart part{.logits = shares->src[0],
                        .experts = sorted,
                        .out = chosen,
                        .n_chosen = static_cast<std::int32_t>(numbers->ne[0]),
                        .normalises = false,
                        .least_sum = 0,
                        .nodes = {}};
  const ggml_tensor* sum = walk.take(GGML_OP_SUM_ROWS, chosen);
  const ggml_tensor* clamped = sum == nullptr ? nullptr : walk.take(GGML_OP_CLAMP, sum);
  if (sum != nullptr) {
    const ggml_tensor* weights = clamped == nullptr ? nullptr : walk.take(GGML_OP_DIV, chosen);
    if (weights == nullptr || origin(weights->src[1]) != clamped) return {};
    part.normalises = true;
    part.least_sum = parameter(clamped, 0);
    part.out = weights;
  }
  // ggml scales the weights in the same kernel.
  if (walk.take(GGML_OP_SCALE, part.out) != nullptr) return {};
  part.nodes = {i, walk.end()};
  const ggml_tensor* divided = part.normalises ? chosen : nullptr;
  if (!are_inner(graph, part.nodes, {shares, sum, clamped, divided})) return {};
  return part;
}

}  // namespace unpaced
