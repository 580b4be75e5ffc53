#include "device/phases/attention_parts.h"

namespace unpaced {

std::string AttentionParts::name(const ggml_tensor* attention) {
  std::string name;
  const auto append = [&name](std::int64_t n) { name += std::to_string(n) + ","; };
  for (const ggml_tensor* source : attention->src) {
    if (source == nullptr) continue;
    append(source->type);
    for (const std::int64_t n : source->ne) append(n);
    // Which kernel ggml takes hangs on what strides are multiples of.
    for (const std::size_t n : source->nb) append(static_cast<std::int64_t>(n));
  }
  for (const std::int32_t parameter : attention->op_params) append(parameter);
  return name;
}

}  // namespace unpaced
