#include "device/graph/row_padding.h"

#include <ggml.h>

namespace unpaced {
namespace {

// Before, ggml's products of many columns are cuBLAS's.
constexpr std::int32_t kIntegerTensorCores = 75;

// ggml_cuda_should_use_mmq(): the quantised formats that have no such kernel.
bool is_by_tiles(ggml_type type) {
  return ggml_is_quantized(type) && type != GGML_TYPE_IQ1_M && type != GGML_TYPE_TQ1_0 &&
         type != GGML_TYPE_TQ2_0;
}

}  // namespace

std::string why_no_row_padding(const StepGraph& graph, std::int32_t compute) {
  if (compute < kIntegerTensorCores) return "sums hang on the number of rows on such a card";
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    const ggml_tensor* node = graph.node(i);
    if (node->op == GGML_OP_MUL_MAT_ID) return "experts' sums hang on the number of rows";
    if (node->op != GGML_OP_MUL_MAT || node->src[1]->ne[1] == 1) continue;
    if (!is_weight(node->src[0]) || !is_by_tiles(node->src[0]->type))
      return std::string("sums of ") + ggml_type_name(node->src[0]->type) +
             " products hang on the number of rows";
  }
  return "";
}

}  // namespace unpaced
