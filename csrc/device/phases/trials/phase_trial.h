// A phase of ours beside ggml's nodes for it, on the loaded weights and random activations.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
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

// Seconds that a phase of a shape takes.
struct TrialTimes {
  double ggml = 0;
  double own = 0;
};

// A trial's memory for measuring: more than any card's cache.
inline constexpr std::size_t kTrialBytes = std::size_t{192} << 20U;

// Writes into the tensors of the graph that is open, and into the KV cache: the first rows, one a
// token, and where a window's attention is tried its rows.
class PhaseTrial {
 public:
  // All outlive this. limit: how long the GPU may be silent; 0: for ever.
  PhaseTrial(LlamaBridge& bridge, const StepGraph& graph, const ValuePlaces& places,
             const PhaseLauncher& launcher, std::chrono::microseconds limit);

  // Memory of kTrialBytes that outlives this, to measure with a cold cache. Without it the cache is
  // warm.
  void clear_cache_by(std::span<std::byte> memory) noexcept { cleared_ = memory; }

  // Both leave the same bits wherever somebody reads them; else the first word that differs, as a
  // sentence. Throws std::runtime_error where one of them cannot be run, EngineLost where the GPU
  // hangs.
  [[nodiscard]] std::string difference(const StepPhase& phase,
                                       TrialValues values = TrialValues::kEven,
                                       std::uint64_t seed = 1);
  // Of phases of the same shape one after the other, weights from memory, not from the cache.
  // Throws as difference().
  [[nodiscard]] TrialTimes measure(std::span<const StepPhase* const> phases);
  // Ours alone.
  [[nodiscard]] double measure_own(std::span<const StepPhase* const> phases);
  // All of them one after the other, whosever they are, the first one ours.
  [[nodiscard]] double measure_step(std::span<const StepPhase> phases);

 private:
  // What a phase leaves in one tensor.
  struct Left {
    std::string name;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] static std::string first_difference(const std::vector<Left>& made,
                                                    const std::vector<Left>& expected);
  // What `enqueue` gives the GPU for each phase, in seconds.
  [[nodiscard]] double measure(std::span<const StepPhase* const> phases,
                               const std::function<void(const StepPhase&)>& enqueue);
  void prepare(const StepPhase& phase);
  // Of so many values, the same each time.
  [[nodiscard]] std::span<const float> any_values(std::size_t n);
  void fill(const ggml_tensor* tensor);
  // A mask that hides single cells, whole blocks of them and the window's end.
  void fill_mask(const ggml_tensor* mask);
  // A window's rows of K or V.
  void fill_rows(const ggml_tensor* view);
  // Each of them the first one.
  void choose_first_rows(const ggml_tensor* rows);
  void fill_inputs(const StepPhase& phase);
  // The rounded rows that phases before this one would have left.
  void round_inputs(const StepPhase& phase);
  // The phase's one row of floats as mat-vecs take it.
  void round_row(const ggml_tensor* row);
  void await() const;
  // Has the GPU write over its cache, which takes longer than the CPU needs for a launch.
  void clear_cache();
  // What the phase leaves to others.
  [[nodiscard]] std::vector<Left> outputs(const StepPhase& phase) const;
  [[nodiscard]] std::uint64_t random() noexcept;
  [[nodiscard]] float activation() noexcept;

  LlamaBridge& bridge_;
  const StepGraph& graph_;
  const ValuePlaces& places_;
  const PhaseLauncher& launcher_;
  const std::chrono::microseconds limit_;
  std::span<std::byte> cleared_;
  TrialValues values_ = TrialValues::kEven;
  bool is_timing_ = false;  // which values they are does not matter
  std::vector<float> any_values_;
  std::uint64_t seed_ = 1;
  std::uint64_t state_ = 1;
};

}  // namespace unpaced
