// What kernels of ours are asked for in place of a graph's parts: matrices, sizes and parameters.
// Where activations lie is for the caller to add.
#pragma once

#include <cstddef>
#include <span>

#include "device/graph/step_part.h"
#include "device/graph/step_phase.h"
#include "device/kernels/card.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/head_rope.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/row_rounding.h"

namespace unpaced {

// With the weights and what ggml adds in the same kernel, without input and outputs.
[[nodiscard]] MatVec mat_vec_of(std::span<const ProductPart> parts);
[[nodiscard]] MatVec mat_vec_of(const GatedPart& part);
// Why there are none: a format that no mat-vec of ours knows, too many matrices. Empty: there are.
[[nodiscard]] std::string why_no_arguments(std::span<const ProductPart> parts);

// Its product by several columns reads records of its input (mat_vec.h).
[[nodiscard]] bool takes_records(const ProductPart& part, const Card& card);
// What the phases' products of many columns keep (mat_mat_sum_bytes()); 0: there are none.
[[nodiscard]] std::size_t product_bytes(std::span<const StepPhase> phases, const Card& card);

[[nodiscard]] GateRow gate_row_of(const ActivationPart& part);

// The parts of Q, K and V among a phase's: by what they are written to.
struct HeadRoles {
  const RopePart* query = nullptr;
  const RopePart* key = nullptr;
  const CacheWritePart* key_row = nullptr;
  const CacheWritePart* value_row = nullptr;
};

[[nodiscard]] HeadRoles roles_of(const RopeLaunch& launch);
// Without inputs and Q's output. `roles` is complete.
[[nodiscard]] HeadRope head_rope_of(const HeadRoles& roles);
// Empty: the parts are Q, K and V of one attention, and the kernel's.
[[nodiscard]] std::string why_no_arguments(const RopeLaunch& launch);

// Without queries, parts and outputs.
[[nodiscard]] HeadAttention head_attention_of(const AttentionPart& part);
// Empty: it is one query's over an F16 cache, and the kernel's.
[[nodiscard]] std::string why_no_arguments(const AttentionPart& part);

}  // namespace unpaced
