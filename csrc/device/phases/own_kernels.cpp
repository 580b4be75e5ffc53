#include "device/phases/own_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "device/kernels/experts/expert_choice.h"
#include "device/kernels/mat_mat.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/norm_row.h"
#include "device/phases/kernel_arguments.h"

namespace unpaced {
namespace {

constexpr int kNone = -1;

// Which of an attention's source's dimensions is the window.
int window_of(const ggml_tensor* node, std::size_t source) {
  if (node->op != GGML_OP_FLASH_ATTN_EXT) return kNone;
  return source == 1 || source == 2 ? 1 : source == 3 ? 0 : kNone;
}

void append(std::string& shape, const ggml_tensor* tensor, int left_out) {
  shape += ggml_type_name(tensor->type);
  for (int i = 0; i < GGML_MAX_DIMS; ++i) {
    shape += i == left_out ? ",n" : "," + std::to_string(tensor->ne[i]);
  }
  shape += ' ';
}

}  // namespace

std::string shape_of(const StepGraph& graph, const StepPhase& phase) {
  std::string shape = name_of(phase.kind) + ": ";
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    const ggml_tensor* node = graph.node(i);
    if (is_view(node)) continue;
    shape += std::string(ggml_op_name(node->op)) + " ";
    append(shape, node, kNone);
    for (std::size_t k = 0; k < GGML_MAX_SRC; ++k) {
      if (node->src[k] != nullptr) append(shape, node->src[k], window_of(node, k));
    }
    // Of operations whose parameters are addresses or counters there are none here.
    for (const std::int32_t parameter : node->op_params) shape += std::to_string(parameter) + ".";
    shape += "; ";
  }
  return shape;
}

std::string OwnKernels::why_no_norm(const NormPart& part) const {
  return why_no_norm_row(part.out->ne[0]);
}

std::string OwnKernels::why_not(MatVec mat_vec, const ggml_tensor* weights) const {
  // Inputs have no place yet: these stand for theirs.
  static constexpr Q8Block kRounded{};
  static constexpr float kFloat = 0;
  if (takes_rounded(weights)) {
    mat_vec.input_q8 = &kRounded;
  } else {
    mat_vec.input = &kFloat;
  }
  if (mat_vec.order_columns > kMatVecColumns) return why_no_mat_mat(mat_vec, card_);
  // More columns have more launches.
  mat_vec.n_columns = std::min(mat_vec.n_columns, kMatVecColumns);
  if (std::string why = why_no_mat_vec(mat_vec, card_); !why.empty()) return why;
  // Read twice, weights cost as much as ggml's kernel from seven columns on.
  // What is to have a column's own bits has no other kernel.
  const bool is_as_alone = mat_vec.n_columns > mat_vec.order_columns;
  const std::int32_t n_most = is_as_alone ? kMatVecColumns : mat_vec.order_columns > 6 ? 2 : 1;
  return n_mat_vec_launches(mat_vec, card_) > n_most ? "it would take several launches" : "";
}

std::string OwnKernels::why_no_products(std::span<const ProductPart> parts) const {
  if (std::string why = why_no_arguments(parts); !why.empty()) return why;
  return why_not(mat_vec_of(parts), parts.front().weights);
}

std::string OwnKernels::why_no_gated(const GatedPart& part) const {
  if (std::string why = why_no_arguments(std::array{part.gate, part.up}); !why.empty()) return why;
  return why_not(mat_vec_of(part), part.up.weights);
}

std::string OwnKernels::why_no_choice(const ExpertChoicePart& part) const {
  return why_no_expert_choice(part.logits->ne[0], part.n_chosen);
}

std::string OwnKernels::why_no_activation(const ActivationPart& part) const {
  return part.out->ne[0] % kQ8Values == 0 ? "" : "a row is not of whole blocks";
}

std::string OwnKernels::why_no_rope(const RopeLaunch& launch) const {
  return why_no_arguments(launch);
}

std::string OwnKernels::why_no_attention(const AttentionPart& part) const {
  if (std::string why = why_no_arguments(part); !why.empty()) return why;
  if (attention_parts(part) > 0) return "";
  return "ggml's attention is by another kernel here";
}

std::int32_t OwnKernels::attention_parts(const AttentionPart& part) const {
  if (part.out->src[0]->ne[3] == 1) return attention_parts_.of(part.out);
  return row_windows_ ? row_windows_->most(part.out->src[1]->ne[1]) : 0;
}

std::string OwnKernels::why_no_phase(const StepGraph& graph, const StepPhase& phase) const {
  if (refused_.empty()) return "";
  const auto found = refused_.find(shape_of(graph, phase));
  return found == refused_.end() ? "" : found->second;
}

}  // namespace unpaced
