// Where a step's graph may be cut without ggml-cuda taking other kernels: it computes some nodes
// that follow one another by one kernel, whose sums have another order or rounding.
#pragma once

#include <vector>

#include "device/graph/step_graph.h"

namespace unpaced {

// [i]: a part may end before node i, for i from 0 to the number of nodes. From
// ggml_cuda_try_fuse() of ggml-cuda.cu at commit 0c1e57098: whatever it may compute by one kernel
// on some card, beginning at any node, is not cut. Where it does compute them one by one, a cut is
// forbidden that would do no harm.
[[nodiscard]] std::vector<bool> fusion_borders(const StepGraph& graph);

}  // namespace unpaced
