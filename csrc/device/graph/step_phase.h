// A step as phases that follow one another: parts of its graph that are ggml's, and phases of ours
// with the kernels they launch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "device/graph/step_graph.h"
#include "device/graph/step_part.h"

namespace unpaced {

// Each is one kernel. Tensors name the values; where a phase keeps what nobody else reads is its
// own affair.
struct NormLaunch {
  // Of a mixture: this is what it takes its values from.
  std::optional<ExpertSumPart> sum;
  // A norm that this one takes its values from, in the same launch: after attention or feed-forward
  // and before the next.
  std::optional<NormPart> before;
  NormPart part;
  bool writes_out;  // somebody reads the floats, not only the rounded row
  bool rounds;      // mat-vecs of ours take the row as q8
};
struct ExpertChoiceLaunch {
  ExpertChoicePart part;
};
// Rows as mat-vecs of quantised weights take them.
struct RoundLaunch {
  const ggml_tensor* input;
};
struct ProductLaunch {
  std::vector<ProductPart> parts;  // with the same input
};
struct GatedLaunch {
  GatedPart part;
};
struct ActivationLaunch {
  ActivationPart part;
  bool rounds;
};
struct RopeLaunch {
  std::vector<RopePart> ropes;
  std::vector<CacheWritePart> writes;
};
struct AttentionLaunch {
  AttentionPart part;
  std::int32_t n_parts;        // PhaseKernels::attention_parts()
  bool writes_out;             // somebody reads the floats
  const ggml_tensor* rounded;  // all heads as the row that products take as q8; nullptr: none does
};
using PhaseLaunch = std::variant<NormLaunch, RoundLaunch, ProductLaunch, GatedLaunch,
                                 ActivationLaunch, RopeLaunch, AttentionLaunch, ExpertChoiceLaunch>;

enum class PhaseKind : std::uint8_t {
  kGgml,
  kNorm,
  kAttentionInput,  // Q, K and V, their positions, the cache's row
  kAttention,
  kExpertChoice,
  kFeedForward,  // gate and up, down
  kProduct,      // any other product
};

struct StepPhase {
  NodeRange nodes;
  PhaseKind kind = PhaseKind::kGgml;
  std::vector<PhaseLaunch> launches;  // ggml's: none
  std::string why;                    // ggml's: why not ours
  bool next_is_ours = false;          // the phase behind it
};

// What there are kernels for. Every answer is the reason why not, as a sentence; empty: there is
// one.
class PhaseKernels {
 public:
  virtual ~PhaseKernels() = default;
  [[nodiscard]] virtual std::string why_no_norm(const NormPart& part) const = 0;
  // In one launch.
  [[nodiscard]] virtual std::string why_no_products(std::span<const ProductPart> parts) const = 0;
  [[nodiscard]] virtual std::string why_no_gated(const GatedPart& part) const = 0;
  [[nodiscard]] virtual std::string why_no_choice(const ExpertChoicePart& part) const = 0;
  [[nodiscard]] virtual std::string why_no_activation(const ActivationPart& part) const = 0;
  [[nodiscard]] virtual std::string why_no_rope(const RopeLaunch& launch) const = 0;
  [[nodiscard]] virtual std::string why_no_attention(const AttentionPart& part) const = 0;
  // By how many ggml divides the cells of one that there is a kernel for.
  [[nodiscard]] virtual std::int32_t attention_parts(const AttentionPart& part) const = 0;
  // Of one that is composed of parts that all have kernels.
  [[nodiscard]] virtual std::string why_no_phase(const StepGraph& graph,
                                                 const StepPhase& phase) const = 0;
};

// The phases of a graph whose tensors lie in memory: every node in one of them, in order. No border
// of a part of ggml's cuts what ggml computes by one kernel, and no kernel of ours writes memory
// that it or a later one of its phase has still to read.
[[nodiscard]] std::vector<StepPhase> plan_phases(const StepGraph& graph,
                                                 const PhaseKernels& kernels);

// Why the phase's kernels would spoil one another's values in the memory where the tensors lie, as
// a sentence; empty: they do not.
[[nodiscard]] std::string memory_conflict(const StepGraph& graph, const StepPhase& phase);

// Weights that mat-vecs multiply with a rounded row.
[[nodiscard]] bool takes_rounded(const ggml_tensor* weights) noexcept;

[[nodiscard]] std::string name_of(PhaseKind kind);

}  // namespace unpaced
