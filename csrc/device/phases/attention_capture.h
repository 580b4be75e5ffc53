// What ggml would launch for a graph's attentions.
#pragma once

#include "device/llama/llama_bridge.h"
#include "device/phases/attention_parts.h"

namespace unpaced {

// Adds those of one query in the graph that is open in the bridge. ggml's launches are captured,
// not run. Throws std::runtime_error.
void find_attention_parts(const LlamaBridge& bridge, const StepGraph& graph, AttentionParts& parts);

}  // namespace unpaced
