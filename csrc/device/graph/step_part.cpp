#include "device/graph/step_part.h"

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

namespace unpaced {
namespace {

bool is_row(const ggml_tensor* tensor) {
  return is_contiguous_f32(tensor) && ggml_nrows(tensor) == 1;
}

bool is_unshared(const StepGraph& graph, const ggml_tensor* tensor) {
  return graph.readers(tensor).size() == 1 && (tensor->flags & GGML_TENSOR_FLAG_OUTPUT) == 0;
}

// The other source of a node that reads `one`; nullptr if it does not.
const ggml_tensor* other_source(const ggml_tensor* node, const ggml_tensor* one) {
  if (node->src[0] == one) return node->src[1];
  return node->src[1] == one ? node->src[0] : nullptr;
}

class PartFinder {
 public:
  explicit PartFinder(const StepGraph& graph) : graph_(graph) {}

  std::vector<StepPart> find() {
    std::vector<StepPart> parts;
    for (std::int32_t i = graph_.next_computing(0); i < graph_.size();
         i = graph_.next_computing(parts.back().nodes.end)) {
      parts.push_back(part_at(i));
    }
    return parts;
  }

 private:
  using Found = std::optional<StepPart>;

  StepPart part_at(std::int32_t i) const {
    for (const auto& find :
         {&PartFinder::rope, &PartFinder::norm, &PartFinder::expert_choice, &PartFinder::expert_sum,
          &PartFinder::gated, &PartFinder::product, &PartFinder::activation,
          &PartFinder::cache_write, &PartFinder::attention}) {
      if (Found found = (this->*find)(i)) return *std::move(found);
    }
    return {{i, i + 1}, OtherPart{why_unknown(graph_.node(i))}};
  }

  // Of so many tokens as kernels of ours take.
  bool are_few_rows(const ggml_tensor* tensor) const {
    return tensor->ne[1] <= kStepTokens && tensor->ne[2] == 1 && tensor->ne[3] == 1;
  }

  bool are_rows(const ggml_tensor* tensor) const {
    return is_contiguous_f32(tensor) && are_few_rows(tensor);
  }

  std::string why_unknown(const ggml_tensor* node) const {
    if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
      if (!is_weight(node->src[0])) return "a product with what is no weight";
      if (node->op == GGML_OP_MUL_MAT_ID) return "experts of several tokens";
      if (!are_few_rows(node->src[1])) return "a product with many vectors";
    }
    if (node->op == GGML_OP_FLASH_ATTN_EXT) return "attention of several tokens";
    if (node->op == GGML_OP_SET_ROWS) return "a cache of another layout";
    return ggml_op_name(node->op);
  }

  // The node behind `last`, if it has this operation and alone reads it.
  const ggml_tensor* follower(std::int32_t last, ggml_op op) const {
    if (last + 1 >= graph_.size()) return nullptr;
    const ggml_tensor* next = graph_.node(last + 1);
    const ggml_tensor* before = graph_.node(last);
    const bool follows =
        next->op == op && is_unshared(graph_, before) && other_source(next, before) != nullptr;
    return follows ? next : nullptr;
  }

  Found norm(std::int32_t i) const {
    const ggml_tensor* node = graph_.node(i);
    if (node->op != GGML_OP_RMS_NORM || !are_rows(node->src[0])) return {};
    const ggml_tensor* product = follower(i, GGML_OP_MUL);
    if (product == nullptr) return {};
    const ggml_tensor* weight = other_source(product, node);
    if (!is_weight(weight) || !is_row(weight) || weight->ne[0] != node->ne[0]) return {};
    NormPart part{
        .input = node->src[0], .weight = weight, .added = nullptr, .out = product, .epsilon = 0};
    std::memcpy(&part.epsilon, node->op_params, sizeof part.epsilon);
    std::int32_t end = i + 2;
    if (const ggml_tensor* sum = follower(i + 1, GGML_OP_ADD)) {
      const ggml_tensor* added = other_source(sum, product);
      if (are_rows(added) && ggml_are_same_shape(added, sum)) {
        part.added = added;
        part.out = sum;
        ++end;
      }
    }
    return StepPart{{i, end}, part};
  }

  Found expert_choice(std::int32_t i) const {
    const std::optional<ExpertChoicePart> part = find_expert_choice(graph_, i);
    if (!part) return {};
    return StepPart{part->nodes, *part};
  }

  static bool is_row_of(const ggml_tensor* view, const ggml_tensor* rows, std::int64_t i) {
    return is_view(view) && origin(view) == rows && is_row(view) && view->ne[0] == rows->ne[0] &&
           view->view_offs == static_cast<std::size_t>(i) * rows->nb[1];
  }

  Found expert_sum(std::int32_t i) const {
    const ggml_tensor* products = graph_.node(i);
    const std::int64_t n = products->ne[1];
    if (products->op != GGML_OP_MUL || !is_contiguous_f32(products) || ggml_nrows(products) != n ||
        n < 2 || n > kSummedExperts) {
      return {};
    }
    const ggml_tensor *experts = products->src[0], *weights = products->src[1];
    if (!is_contiguous_f32(experts) || !ggml_are_same_shape(experts, products) ||
        !is_contiguous_f32(weights) || weights->ne[0] != 1 || ggml_nelements(weights) != n) {
      return {};
    }
    std::vector<const ggml_tensor*> inner = {products};
    std::int32_t end = i + 1;
    for (std::int64_t expert = 1; expert < n; ++expert) {
      const ggml_tensor* sum = graph_.next_if(end, GGML_OP_ADD);
      if (sum == nullptr || !is_row(sum) || !is_row_of(sum->src[1], products, expert)) return {};
      const bool follows =
          expert == 1 ? is_row_of(sum->src[0], products, 0) : sum->src[0] == inner.back();
      if (!follows) return {};
      inner.push_back(sum);
      end = graph_.next_computing(end) + 1;
    }
    const ggml_tensor* out = graph_.next_if(end, GGML_OP_ADD);
    const ggml_tensor* added = out == nullptr ? nullptr : other_source(out, inner.back());
    if (added == nullptr || !is_row(added) || !is_row(out)) return {};
    const NodeRange nodes{i, graph_.next_computing(end) + 1};
    for (const ggml_tensor* value : inner) {
      if (graph_.is_read_outside(value, nodes)) return {};
    }
    return StepPart{nodes, ExpertSumPart{experts, weights, added, out}};
  }

  // A norm of each head, and its weight: the two nodes before a ROPE.
  bool is_head_norm(std::int32_t i) const {
    const ggml_tensor* node = graph_.node(i);
    const ggml_tensor* product = follower(i, GGML_OP_MUL);
    if (node->op != GGML_OP_RMS_NORM || product == nullptr) return false;
    const ggml_tensor* weight = other_source(product, node);
    return product->src[0] == node && is_weight(weight) && is_row(weight) &&
           weight->ne[0] == node->ne[0] && node->ne[2] <= kStepTokens;
  }

  Found rope(std::int32_t i) const {
    RopePart part{};
    std::int32_t at = i;
    if (graph_.node(i)->op == GGML_OP_RMS_NORM) {
      if (!is_head_norm(i) || follower(i + 1, GGML_OP_ROPE) == nullptr) return {};
      part.norm = graph_.node(i);
      part.weight = graph_.node(i + 1)->src[1];
      at = i + 2;
    }
    const ggml_tensor* node = graph_.node(at);
    if (node->op != GGML_OP_ROPE || node->ne[2] > kStepTokens || node->ne[3] != 1) return {};
    part.input = part.norm != nullptr ? part.norm->src[0] : node->src[0];
    part.rope = part.out = node;
    if (const ggml_tensor* scale = scale_after(at)) {
      part.scale = part.out = scale;
      ++at;
    }
    return StepPart{{i, at + 1}, part};
  }

  // Gemma's queries.
  const ggml_tensor* scale_after(std::int32_t last) const {
    if (last + 1 >= graph_.size()) return nullptr;
    const ggml_tensor* next = graph_.node(last + 1);
    const bool follows = next->op == GGML_OP_SCALE && next->src[0] == graph_.node(last) &&
                         is_unshared(graph_, graph_.node(last));
    return follows ? next : nullptr;
  }

  // The product at node i, without what is added.
  std::optional<ProductPart> bare_product(std::int32_t i) const {
    if (i >= graph_.size()) return {};
    const ggml_tensor* node = graph_.node(i);
    const bool chosen = node->op == GGML_OP_MUL_MAT_ID;
    if (node->op != GGML_OP_MUL_MAT && !chosen) return {};
    const ggml_tensor* input = node->src[1];
    if (!is_weight(node->src[0]) || !is_contiguous_f32(input) || !is_contiguous_f32(node)) {
      return {};
    }
    // A few tokens; of experts one, and each of the chosen ones may have a vector of its own.
    const bool one = chosen
                         ? node->ne[2] == 1 && node->ne[3] == 1 && input->ne[2] == 1
                         : are_few_rows(input) && ggml_nrows(node->src[0]) == node->src[0]->ne[1];
    if (!one) return {};
    return ProductPart{.weights = node->src[0],
                       .input = input,
                       .experts = chosen ? node->src[2] : nullptr,
                       .added = nullptr,
                       .product = node,
                       .out = node,
                       .order_columns = chosen || graph_.has_rows_as_alone()
                                            ? 1
                                            : static_cast<std::int32_t>(input->ne[1])};
  }

  // A choice among the rows of one row: a copy.
  static bool is_copy(const ggml_tensor* node) {
    return node->op == GGML_OP_GET_ROWS && is_row(node->src[0]) && is_row(node);
  }

  // Of the last layer: the residual, after the row's choice from product and residual, which have
  // but one. The sum is the same.
  void take_chosen(ProductPart& part, std::int32_t& last) const {
    if (part.experts != nullptr || last + 3 >= graph_.size()) return;
    const ggml_tensor *row = graph_.node(last + 1), *residual = graph_.node(last + 2);
    const ggml_tensor* sum = graph_.node(last + 3);
    if (!is_copy(row) || !is_copy(residual) || sum->op != GGML_OP_ADD) return;
    if (row->src[0] != part.out || other_source(sum, row) != residual) return;
    if (!is_unshared(graph_, part.out) || !is_unshared(graph_, row) ||
        !is_unshared(graph_, residual) || !ggml_are_same_shape(row, residual)) {
      return;
    }
    part.added = residual->src[0];
    part.out = sum;
    last += 3;
  }

  // The same for every token.
  static bool is_bias(const ggml_tensor* added, const ggml_tensor* sum) {
    return is_row(added) && added->ne[0] == sum->ne[0];
  }

  // With what ggml adds by the same kernel, if it is of one token; `last` becomes its node.
  void take_added(ProductPart& part, std::int32_t& last) const {
    const ggml_tensor* sum = follower(last, part.experts == nullptr ? GGML_OP_ADD : GGML_OP_ADD_ID);
    if (sum == nullptr) return take_chosen(part, last);
    const ggml_tensor* added = other_source(sum, part.out);
    const bool fits = part.experts == nullptr
                          ? ggml_are_same_shape(sum, added) || is_bias(added, sum)
                          : sum->src[0] == part.out && sum->src[2] == part.experts;
    if (!fits || !is_contiguous_f32(added)) return;
    part.added = added;
    part.out = sum;
    ++last;
  }

  Found product(std::int32_t i) const {
    std::optional<ProductPart> part = bare_product(i);
    if (!part) return {};
    std::int32_t last = i;
    take_added(*part, last);
    return StepPart{{i, last + 1}, *part};
  }

  static bool computes_within_product(const ggml_tensor* glu) {
    const ggml_glu_op op = ggml_get_glu_op(glu);
    const bool known = op == GGML_GLU_OP_SWIGLU || op == GGML_GLU_OP_GEGLU ||
                       op == GGML_GLU_OP_SWIGLU_OAI || op == GGML_GLU_OP_SWIGLU_CLAMP;
    const bool swapped = glu->op_params[1] != 0;
    return known && !swapped;
  }

  static bool are_alike(const ProductPart& a, const ProductPart& b) {
    return a.input == b.input && a.experts == b.experts && a.weights->type == b.weights->type &&
           ggml_are_same_shape(a.weights, b.weights) &&
           ggml_are_same_stride(a.weights, b.weights) &&
           (a.added == nullptr) == (b.added == nullptr);
  }

  // Two products and the GLU that alone reads them.
  Found gated(std::int32_t i) const {
    std::int32_t last = i;
    std::optional<ProductPart> first = bare_product(i);
    if (!first) return {};
    take_added(*first, last);
    std::optional<ProductPart> second = bare_product(++last);
    if (!second) return {};
    take_added(*second, last);
    if (++last >= graph_.size() || !are_alike(*first, *second)) return {};
    const ggml_tensor* glu = graph_.node(last);
    if (glu->op != GGML_OP_GLU || !computes_within_product(glu)) return {};
    if (!is_unshared(graph_, first->out) || !is_unshared(graph_, second->out)) return {};
    if (glu->src[0] == second->out) std::swap(first, second);
    if (glu->src[0] != first->out || glu->src[1] != second->out) return {};
    return StepPart{{i, last + 1}, GatedPart{.gate = *first, .up = *second, .out = glu}};
  }

  Found activation(std::int32_t i) const {
    const ggml_tensor* node = graph_.node(i);
    if (node->op != GGML_OP_GLU || node->src[1] != nullptr || !computes_within_product(node) ||
        !are_rows(node->src[0]) || !are_rows(node)) {
      return {};
    }
    return StepPart{{i, i + 1}, ActivationPart{.input = node->src[0], .out = node}};
  }

  // V may be a part of what Q, K and V are made in.
  bool are_cache_rows(const ggml_tensor* rows) const {
    return rows->type == GGML_TYPE_F32 && rows->nb[0] == sizeof(float) && are_few_rows(rows);
  }

  Found cache_write(std::int32_t i) const {
    const ggml_tensor* node = graph_.node(i);
    if (node->op != GGML_OP_SET_ROWS || !are_cache_rows(node->src[0]) ||
        node->src[1]->type != GGML_TYPE_I64 ||
        ggml_nelements(node->src[1]) != ggml_nrows(node->src[0])) {
      return {};
    }
    return StepPart{{i, i + 1},
                    CacheWritePart{.input = node->src[0], .rows = node->src[1], .out = node}};
  }

  Found attention(std::int32_t i) const {
    const ggml_tensor* node = graph_.node(i);
    if (node->op != GGML_OP_FLASH_ATTN_EXT || node->src[0]->ne[1] != 1) return {};
    return StepPart{{i, i + 1}, AttentionPart{.out = node}};
  }

  const StepGraph& graph_;
};

}  // namespace

std::vector<StepPart> find_parts(const StepGraph& graph) { return PartFinder(graph).find(); }

}  // namespace unpaced
