#include "device/graph/fusion_borders.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace unpaced {
namespace {

using Ops = std::vector<ggml_op>;

const std::vector<Ops>& sequences() {
  static const std::vector<Ops> all = {
      Ops{GGML_OP_ROPE, GGML_OP_VIEW, GGML_OP_SET_ROWS},
      Ops{GGML_OP_RMS_NORM, GGML_OP_MUL, GGML_OP_ROPE, GGML_OP_VIEW, GGML_OP_SET_ROWS},
      Ops{GGML_OP_RMS_NORM, GGML_OP_MUL, GGML_OP_ROPE},
      Ops{GGML_OP_RMS_NORM, GGML_OP_MUL, GGML_OP_ADD},
      Ops{GGML_OP_RMS_NORM, GGML_OP_MUL},
      Ops{GGML_OP_RMS_NORM, GGML_OP_SCALE},
      Ops{GGML_OP_MUL_MAT, GGML_OP_ADD},
      Ops{GGML_OP_MUL_MAT, GGML_OP_MUL},
      Ops{GGML_OP_MUL_MAT, GGML_OP_MUL, GGML_OP_ADD},
      Ops{GGML_OP_MUL_MAT, GGML_OP_MUL_MAT, GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT, GGML_OP_ADD, GGML_OP_MUL_MAT, GGML_OP_ADD, GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT, GGML_OP_MUL, GGML_OP_MUL_MAT, GGML_OP_MUL, GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT, GGML_OP_MUL, GGML_OP_ADD, GGML_OP_MUL_MAT, GGML_OP_MUL, GGML_OP_ADD,
          GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT_ID, GGML_OP_ADD_ID},
      Ops{GGML_OP_MUL_MAT_ID, GGML_OP_MUL_MAT_ID, GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT_ID, GGML_OP_ADD_ID, GGML_OP_MUL_MAT_ID, GGML_OP_ADD_ID, GGML_OP_GLU},
      Ops{GGML_OP_MUL_MAT_ID, GGML_OP_RESHAPE, GGML_OP_REPEAT, GGML_OP_GET_ROWS, GGML_OP_MUL,
          GGML_OP_ADD_ID},
      Ops{GGML_OP_MUL_MAT_ID, GGML_OP_RESHAPE, GGML_OP_REPEAT, GGML_OP_GET_ROWS, GGML_OP_MUL,
          GGML_OP_MUL_MAT_ID, GGML_OP_RESHAPE, GGML_OP_REPEAT, GGML_OP_GET_ROWS, GGML_OP_MUL,
          GGML_OP_GLU},
      Ops{GGML_OP_MUL, GGML_OP_SIN, GGML_OP_SQR, GGML_OP_MUL, GGML_OP_ADD},
      Ops{GGML_OP_SSM_CONV, GGML_OP_ADD, GGML_OP_UNARY},
      Ops{GGML_OP_SSM_CONV, GGML_OP_UNARY},
      Ops{GGML_OP_UNARY, GGML_OP_MUL},
      Ops{GGML_OP_UNARY, GGML_OP_SQR},
      Ops{GGML_OP_SCALE, GGML_OP_UNARY, GGML_OP_SCALE},
  };
  return all;
}

// Choosing experts (topk-moe.cu) and adding them up (moe-weighted-reduction.cu) are sequences of
// many lengths; a recurrent state is copied after whatever views. All nodes of these operations
// that follow one another stay together.
bool chooses_experts(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_SOFT_MAX:
    case GGML_OP_ARGSORT:
    case GGML_OP_GET_ROWS:
    case GGML_OP_SUM_ROWS:
    case GGML_OP_CLAMP:
    case GGML_OP_DIV:
    case GGML_OP_SQRT:
      return true;
    case GGML_OP_UNARY:
      return ggml_get_unary_op(node) == GGML_UNARY_OP_SIGMOID ||
             ggml_get_unary_op(node) == GGML_UNARY_OP_SOFTPLUS;
    default:
      return false;
  }
}

class BorderFinder {
 public:
  explicit BorderFinder(const StepGraph& graph)
      : graph_(graph), borders_(static_cast<std::size_t>(graph.size()) + 1, true) {}

  std::vector<bool> find() && {
    for (std::int32_t i = 0; i < graph_.size(); ++i) {
      for (const Ops& ops : sequences()) forbid_sequence(i, ops);
      forbid_row_of(i, GGML_OP_ADD);
      forbid_row_of(i, GGML_OP_MUL);
      forbid_choice(i);
      forbid_weighted_sum(i);
      forbid_state_copy(i);
    }
    return std::move(borders_);
  }

 private:
  void forbid(std::int32_t begin, std::int32_t end) {
    for (std::int32_t i = begin + 1; i < end; ++i) borders_[static_cast<std::size_t>(i)] = false;
  }

  // One of the nodes from begin on reads node i: what ggml fuses is connected.
  bool reads_one_of(std::int32_t i, std::int32_t begin) const {
    return std::ranges::any_of(graph_.node(i)->src, [&](const ggml_tensor* source) {
      const std::int32_t at = source == nullptr ? -1 : graph_.index_of(source);
      return at >= begin && at < i;
    });
  }

  void forbid_sequence(std::int32_t begin, const Ops& ops) {
    const auto end = begin + static_cast<std::int32_t>(ops.size());
    if (end > graph_.size()) return;
    std::int32_t i = begin;
    for (const ggml_op op : ops) {
      if (graph_.node(i++)->op != op) return;
    }
    if (reads_one_of(end - 1, begin)) forbid(begin, end);
  }

  // Several sums or products one after the other, but for a first one that goes with what is
  // before.
  void forbid_row_of(std::int32_t begin, ggml_op op) {
    if (begin + 2 > graph_.size() || graph_.node(begin)->op != op ||
        graph_.node(begin + 1)->op != op || !reads_one_of(begin + 1, begin)) {
      return;
    }
    const ggml_op before = begin == 0 ? GGML_OP_NONE : graph_.node(begin - 1)->op;
    const bool is_taken = before == GGML_OP_MUL_MAT || before == GGML_OP_MUL_MAT_ID ||
                          (op == GGML_OP_ADD && before == GGML_OP_MUL);
    if (!is_taken || !reads_one_of(begin, begin - 1)) forbid(begin, begin + 2);
  }

  void forbid_choice(std::int32_t begin) {
    const ggml_tensor* first = graph_.node(begin);
    if (first->op != GGML_OP_SOFT_MAX && first->op != GGML_OP_ARGSORT &&
        first->op != GGML_OP_UNARY) {
      return;
    }
    bool sorts = first->op == GGML_OP_ARGSORT;
    std::int32_t end = begin + 1;
    for (; end < graph_.size(); ++end) {
      const ggml_tensor* node = graph_.node(end);
      // A bias of the probabilities, and a factor of the weights.
      const bool joins = node->op == GGML_OP_ADD || node->op == GGML_OP_SCALE;
      if (!is_view(node) && !chooses_experts(node) && !(joins && reads_one_of(end, begin))) break;
      sorts = sorts || node->op == GGML_OP_ARGSORT;
    }
    if (sorts) forbid(begin, end);
  }

  void forbid_weighted_sum(std::int32_t begin) {
    if (graph_.node(begin)->op != GGML_OP_MUL) return;
    std::int32_t end = begin + 1;
    bool has_views = false;
    while (end < graph_.size() && reads_one_of(end, begin) &&
           (graph_.node(end)->op == GGML_OP_VIEW || graph_.node(end)->op == GGML_OP_ADD ||
            graph_.node(end)->op == GGML_OP_MUL)) {
      // The first sum that reads another tensor too is no longer of the experts.
      if (graph_.node(end)->op == GGML_OP_ADD && has_views && !reads_only(end, begin)) break;
      has_views = has_views || graph_.node(end)->op == GGML_OP_VIEW;
      ++end;
    }
    if (has_views) forbid(begin, end);
  }

  bool reads_only(std::int32_t i, std::int32_t begin) const {
    return std::ranges::all_of(graph_.node(i)->src, [&](const ggml_tensor* source) {
      return source == nullptr || graph_.index_of(source) >= begin;
    });
  }

  void forbid_state_copy(std::int32_t begin) {
    if (graph_.node(begin)->op != GGML_OP_GATED_DELTA_NET) return;
    const std::int32_t next = graph_.next_computing(begin + 1);
    if (next < graph_.size() && graph_.node(next)->op == GGML_OP_CPY) forbid(begin, next + 1);
  }

  const StepGraph& graph_;
  std::vector<bool> borders_;
};

}  // namespace

std::vector<bool> fusion_borders(const StepGraph& graph) { return BorderFinder(graph).find(); }

}  // namespace unpaced
