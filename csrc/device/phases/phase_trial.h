// A phase of ours beside ggml's nodes for it, on the loaded weights and random activations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/graph/step_phase.h"
#include "device/llama/llama_bridge.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/value_places.h"

namespace unpaced {

// What a trial's activations are.
enum class TrialValues : std::uint8_t {
  kEven,  // between -3 and 3
  kWide,  // of all magnitudes: zeros of both signs, denormals, up to 1e18
};

// Seconds for phases of one shape, one after the other.
struct TrialTimes {
  double ggml = 0;
  double own = 0;
};

// Writes into the tensors of the graph that is open, and into row 0 of the KV cache.
class PhaseTrial {
 public:
  // All outlive this.
  PhaseTrial(LlamaBridge& bridge, const StepGraph& graph, const ValuePlaces& places,
             const PhaseLauncher& launcher);

  // Both leave the same bits wherever somebody reads them. Throws std::runtime_error where one of
  // them cannot be run.
  [[nodiscard]] bool is_exact(const StepPhase& phase, TrialValues values = TrialValues::kEven,
                              std::uint64_t seed = 1);
  // Of phases of the same shape one after the other, so that weights come from memory, not from the
  // cache. Throws as is_exact().
  [[nodiscard]] TrialTimes measure(std::span<const StepPhase* const> phases);
  // Ours alone.
  [[nodiscard]] double measure_own(std::span<const StepPhase* const> phases);

 private:
  using Bytes = std::vector<std::byte>;

  // What `enqueue` gives the GPU for each phase, in seconds.
  [[nodiscard]] double measure(std::span<const StepPhase* const> phases,
                               const std::function<void(const StepPhase&)>& enqueue);
  void prepare(const StepPhase& phase);
  void fill(const ggml_tensor* tensor);
  void fill_inputs(const StepPhase& phase);
  // The rounded rows that phases before this one would have left.
  void round_inputs(const StepPhase& phase);
  // What the phase leaves to others.
  [[nodiscard]] Bytes outputs(const StepPhase& phase) const;
  [[nodiscard]] std::uint64_t random() noexcept;
  [[nodiscard]] float activation() noexcept;

  LlamaBridge& bridge_;
  const StepGraph& graph_;
  const ValuePlaces& places_;
  const PhaseLauncher& launcher_;
  TrialValues values_ = TrialValues::kEven;
  std::uint64_t seed_ = 1;
  std::uint64_t state_ = 1;
};

}  // namespace unpaced
