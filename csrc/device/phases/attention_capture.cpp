#include "device/phases/attention_capture.h"

#include "device/state/stream_capture.h"

namespace unpaced {
namespace {

// 0: not by the kernel for one query, or by more than it and the one that adds its parts up.
std::int32_t parts_of(const std::vector<CapturedKernel>& kernels) {
  std::int32_t n = 0;
  std::size_t n_known = 0;
  for (const CapturedKernel& kernel : kernels) {
    const auto is = [&](const char* name) { return kernel.name.find(name) != std::string::npos; };
    if (is("flash_attn_ext_vec")) n = static_cast<std::int32_t>(kernel.grid.y);
    if (is("flash_attn_ext_vec") || is("flash_attn_combine_results")) ++n_known;
  }
  const bool is_whole = n_known == kernels.size() && n_known == (n == 1 ? 1U : 2U);
  return is_whole ? n : 0;
}

}  // namespace

void find_attention_parts(const LlamaBridge& bridge, const StepGraph& graph,
                          AttentionParts& parts) {
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    const ggml_tensor* node = graph.node(i);
    const bool is_one = node->op == GGML_OP_FLASH_ATTN_EXT && node->src[0]->ne[1] == 1;
    if (!is_one || parts.of(node) >= 0) continue;
    parts.put(node, parts_of(captured_kernels(bridge.stream(),
                                              [&] { bridge.run({.begin = i, .end = i + 1}); })));
  }
}

}  // namespace unpaced
