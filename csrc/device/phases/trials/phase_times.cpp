// How long phases take.
#include <algorithm>
#include <limits>

#include "device/phases/trials/phase_trial.h"
#include "device/phases/trials/timed_graph.h"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

constexpr int kRounds = 3;
constexpr std::size_t kPhasesTimed = 8;

// Which experts are chosen an earlier phase says: the values of another layer's may be anything.
bool has_experts(const StepPhase& phase) {
  const auto chosen = [](const ProductPart& part) { return part.experts != nullptr; };
  return std::ranges::any_of(phase.launches, [&](const PhaseLaunch& launch) {
    const auto* products = std::get_if<ProductLaunch>(&launch);
    const auto* gated = std::get_if<GatedLaunch>(&launch);
    return (products != nullptr && std::ranges::any_of(products->parts, chosen)) ||
           (gated != nullptr && chosen(gated->part.up));
  });
}

}  // namespace

void PhaseTrial::clear_cache() {
  if (cleared_.empty()) return;
  cuda_check(cudaMemsetAsync(cleared_.data(), 0, cleared_.size(), bridge_.stream()),
             "cudaMemsetAsync");
}

double PhaseTrial::measure(std::span<const StepPhase* const> phases,
                           const std::function<void(const StepPhase&)>& enqueue) {
  phases = phases.first(has_experts(*phases.front()) ? 1 : std::min(phases.size(), kPhasesTimed));
  values_ = TrialValues::kEven;
  is_timing_ = true;
  TimedGraph graph(bridge_.stream(), [&] {
    for (const StepPhase* phase : phases) enqueue(*phase);
  });
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    // Each time: what a phase leaves may lie where its inputs lay.
    for (const StepPhase* phase : phases) fill_inputs(*phase);
    for (const StepPhase* phase : phases) round_inputs(*phase);
    clear_cache();
    best = std::min(best, graph.seconds(limit_));
  }
  return best / static_cast<double>(phases.size());
}

TrialTimes PhaseTrial::measure(std::span<const StepPhase* const> phases) {
  const auto by_ggml = [this](const StepPhase& phase) { bridge_.run(phase.nodes); };
  return {.ggml = measure(phases, by_ggml), .own = measure_own(phases)};
}

double PhaseTrial::measure_own(std::span<const StepPhase* const> phases) {
  return measure(phases,
                 [this](const StepPhase& phase) { launcher_.enqueue(phase, bridge_.stream()); });
}

double PhaseTrial::measure_step(std::span<const StepPhase> phases) {
  values_ = TrialValues::kEven;
  is_timing_ = true;
  TimedGraph graph(bridge_.stream(), [&] {
    for (const StepPhase& phase : phases) {
      if (phase.kind == PhaseKind::kGgml)
        bridge_.run(phase.nodes);
      else
        launcher_.enqueue(phase, bridge_.stream());
    }
  });
  // Once: what phases leave to one another then is something, and what is ggml's reads nothing
  // else.
  for (const StepPhase& phase : phases) {
    if (phase.kind != PhaseKind::kGgml) fill_inputs(phase);
  }
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    clear_cache();
    best = std::min(best, graph.seconds(limit_));
  }
  return best;
}

}  // namespace unpaced
