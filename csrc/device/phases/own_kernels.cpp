#include "device/phases/own_kernels.h"

#include <array>
#include <utility>

#include "device/kernels/mat_vec.h"
#include "device/kernels/norm_row.h"
#include "device/phases/kernel_arguments.h"

namespace unpaced {
namespace {

void append(std::string& shape, const ggml_tensor* tensor) {
  shape += ggml_type_name(tensor->type);
  for (const std::int64_t n : tensor->ne) shape += "," + std::to_string(n);
  shape += ' ';
}

}  // namespace

std::string shape_of(const StepGraph& graph, const StepPhase& phase) {
  std::string shape = name_of(phase.kind) + ": ";
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    const ggml_tensor* node = graph.node(i);
    if (is_view(node)) continue;
    shape += std::string(ggml_op_name(node->op)) + " ";
    append(shape, node);
    for (const ggml_tensor* source : node->src) {
      if (source != nullptr) append(shape, source);
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
  return why_no_mat_vec(mat_vec, card_);
}

std::string OwnKernels::why_no_products(std::span<const ProductPart> parts) const {
  if (std::string why = why_no_arguments(parts); !why.empty()) return why;
  return why_not(mat_vec_of(parts), parts.front().weights);
}

std::string OwnKernels::why_no_gated(const GatedPart& part) const {
  if (std::string why = why_no_arguments(std::array{part.gate, part.up}); !why.empty()) return why;
  return why_not(mat_vec_of(part), part.up.weights);
}

std::string OwnKernels::why_no_activation(const ActivationPart& part) const {
  return part.out->ne[0] % kQ8Values == 0 ? "" : "a row is not of whole blocks";
}

std::string OwnKernels::why_no_rope(const RopeLaunch& launch) const {
  return why_no_arguments(launch);
}

std::string OwnKernels::why_no_phase(const StepGraph& graph, const StepPhase& phase) const {
  if (refused_.empty()) return "";
  const auto found = refused_.find(shape_of(graph, phase));
  return found == refused_.end() ? "" : found->second;
}

}  // namespace unpaced
