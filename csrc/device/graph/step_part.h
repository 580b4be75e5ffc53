// What a step's graph is made of, part by part: a part is what one kernel computes, a few nodes
// that follow one another, views between them or not. A step has one token, or a few (a prompt).
#pragma once

#include <ggml.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "device/graph/expert_choice.h"
#include "device/graph/step_graph.h"
#include "model/loop_memory.h"

namespace unpaced {

// Rows that parts have at most, in the order of ggml's kernels for so many of them: a prompt's, or
// a step's.
inline constexpr std::int32_t kStepTokens = kMaxPromptTokens;
static_assert(kStepTokens >= kMaxOwnRows);
// Each in the order of those for one (StepGraph::has_rows_as_alone()).
inline constexpr std::int32_t kRowsAsAlone = kMaxOwnRows;
inline constexpr std::int32_t kSummedExperts = 15;  // as ggml's kernel

// weight * x / rms(x) of each token's row, plus another row: before and after attention and
// feed-forward.
struct NormPart {
  const ggml_tensor* input;
  const ggml_tensor* weight;
  const ggml_tensor* added;  // nullptr: nothing
  const ggml_tensor* out;
  float epsilon;
};

// What the chosen experts made of one token, each times its weight, added up, plus the residual.
struct ExpertSumPart {
  const ggml_tensor* experts;  // a row each
  const ggml_tensor* weights;
  const ggml_tensor* added;
  const ggml_tensor* out;
};

// A matrix of the model times one vector a token, or the matrices of the experts that were chosen,
// of one token. What is added: a bias or the residual, of one token by the same kernel of ggml's.
struct ProductPart {
  const ggml_tensor* weights;
  const ggml_tensor* input;
  const ggml_tensor* experts;  // nullptr: not a mixture's
  const ggml_tensor* added;    // nullptr: nothing
  const ggml_tensor* product;  // the MUL_MAT or MUL_MAT_ID node
  const ggml_tensor* out;
  std::int32_t order_columns = 1;  // whose bits: those of ggml's kernel for so many vectors
};

// Gate and up, and their product after the gate's activation, of one token by one kernel.
struct GatedPart {
  ProductPart gate;
  ProductPart up;
  const ggml_tensor* out;  // the GLU node: its operation and parameters
};

// The same of a product that has been computed already, gate and up behind one another.
struct ActivationPart {
  const ggml_tensor* input;
  const ggml_tensor* out;  // the GLU node
};

// Positions turned into the heads of Q or K, each normalised first in some architectures and
// scaled after in others.
struct RopePart {
  const ggml_tensor* input;
  const ggml_tensor* norm;    // the RMS_NORM node; nullptr: none
  const ggml_tensor* weight;  // its weight
  const ggml_tensor* rope;    // the ROPE node
  const ggml_tensor* scale;   // the SCALE node; nullptr: none
  const ggml_tensor* out;
};

// Each token's row written into the KV cache.
struct CacheWritePart {
  const ggml_tensor* input;
  const ggml_tensor* rows;  // which: I64
  const ggml_tensor* out;   // the SET_ROWS node
};

// Of one token, or of one token in each of several streams.
struct AttentionPart {
  const ggml_tensor* out;  // the FLASH_ATTN_EXT node
};

// Anything else. `why` says what it was not, where it began as something known.
struct OtherPart {
  std::string why;
};

using PartDetail = std::variant<OtherPart, NormPart, ExpertChoicePart, ExpertSumPart, ProductPart,
                                GatedPart, ActivationPart, RopePart, CacheWritePart, AttentionPart>;

struct StepPart {
  NodeRange nodes;  // from the first node that computes to the last, views between them
  PartDetail detail;
};

// Every node that computes belongs to one part, in order. From operations, shapes and who reads
// whom; names do not matter.
[[nodiscard]] std::vector<StepPart> find_parts(const StepGraph& graph);

}  // namespace unpaced
