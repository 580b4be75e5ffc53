// What this card has kernels of ours for, and what it does not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "device/graph/step_phase.h"
#include "device/kernels/card.h"
#include "device/kernels/mat_vec.h"
#include "device/phases/attention_parts.h"
#include "device/phases/row_windows.h"

namespace unpaced {

// Phases with the same name compute the same on other values: operations, types, shapes and
// parameters, not tensors. Of an attention the window's size does not count.
[[nodiscard]] std::string shape_of(const StepGraph& graph, const StepPhase& phase);

class OwnKernels final : public PhaseKernels {
 public:
  explicit OwnKernels(const Card& card) : card_(card) {}

  // Without it no attention is ours.
  void know(AttentionParts parts) { attention_parts_ = std::move(parts); }
  // Without it attention of several rows is ggml's.
  void know(RowWindows windows) { row_windows_ = std::move(windows); }
  // Phases of this shape are ggml's.
  void refuse(const std::string& shape, std::string why) { refused_[shape] = std::move(why); }
  [[nodiscard]] std::string why_no_norm(const NormPart& part) const override;
  [[nodiscard]] std::string why_no_products(std::span<const ProductPart> parts) const override;
  [[nodiscard]] std::string why_no_gated(const GatedPart& part) const override;
  [[nodiscard]] std::string why_no_choice(const ExpertChoicePart& part) const override;
  [[nodiscard]] std::string why_no_activation(const ActivationPart& part) const override;
  [[nodiscard]] std::string why_no_rope(const RopeLaunch& launch) const override;
  [[nodiscard]] std::string why_no_attention(const AttentionPart& part) const override;
  [[nodiscard]] std::int32_t attention_parts(const AttentionPart& part) const override;
  [[nodiscard]] std::string why_no_phase(const StepGraph& graph,
                                         const StepPhase& phase) const override;

 private:
  [[nodiscard]] std::string why_not(MatVec mat_vec, const ggml_tensor* weights) const;

  const Card card_;
  AttentionParts attention_parts_;
  std::optional<RowWindows> row_windows_;
  std::map<std::string, std::string> refused_;  // by shape: why
};

}  // namespace unpaced
