// Whether a graph of several tokens may have rows that are no token's.
#pragma once

#include <cstdint>
#include <string>

#include "device/graph/step_graph.h"

namespace unpaced {

// Why other rows would change what a row becomes: products by cuBLAS sum in an order that hangs on
// how many rows there are, ggml's own of quantised weights (mmq.cuh) do not. As a sentence; empty:
// they change nothing. compute: of the card, as 90.
[[nodiscard]] std::string why_no_row_padding(const StepGraph& graph, std::int32_t compute);

}  // namespace unpaced
