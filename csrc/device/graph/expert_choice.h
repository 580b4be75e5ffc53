// Which experts a mixture's token goes to, and with which weights: from the router's logits.
#pragma once

#include <cstdint>
#include <optional>

#include "device/graph/step_graph.h"

namespace unpaced {

// The shares of a softmax, the best of them in descending order (of equal ones the lower number),
// and their weights: the shares, or those by their sum.
struct ExpertChoicePart {
  const ggml_tensor* logits;   // one row
  const ggml_tensor* experts;  // the ARGSORT node: the chosen ones are its first
  const ggml_tensor* out;      // their weights: n_chosen floats
  std::int32_t n_chosen;
  bool normalises;
  float least_sum;  // what a smaller sum counts as

  NodeRange nodes;
};

// That which begins at node i, if one does.
[[nodiscard]] std::optional<ExpertChoicePart> find_expert_choice(const StepGraph& graph,
                                                                 std::int32_t i);

}  // namespace unpaced
