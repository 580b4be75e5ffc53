// Finds the fastest builds of a phase's mat-vecs on this card, by running them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/graph/step_phase.h"
#include "device/kernels/card.h"
#include "device/phases/mat_vec_choices.h"
#include "device/phases/trials/phase_trial.h"

namespace unpaced {

// What one build gave.
struct VariantTime {
  std::size_t launch;  // of the phase's
  std::int32_t variant;
  double seconds;  // the whole phases
};

class PhaseTuner {
 public:
  // All outlive this; the trial's launcher goes by `choices`.
  PhaseTuner(PhaseTrial& trial, MatVecChoices& choices, const Card& card)
      : trial_(trial), choices_(choices), card_(card) {}

  // Of phases of one shape. Leaves the fastest build of each mat-vec among the choices. Whether its
  // bits are ggml's is not asked. Throws as PhaseTrial.
  std::vector<VariantTime> tune(std::span<const StepPhase* const> phases);
  // Between builds that were nearly as fast for a phase by itself, and the first ones: those with
  // which a step is fastest, by `step_seconds`. What is faster beside its like may hold up what
  // comes behind it. until: no other is measured after it.
  void settle(const std::function<double()>& step_seconds,
              std::chrono::steady_clock::time_point until);
  // The builds of a phase's mat-vecs, as a number that choose() takes.
  [[nodiscard]] std::int32_t chosen(const StepPhase& phase) const;
  void choose(const StepPhase& phase, std::int32_t builds);

 private:
  // Builds of a mat-vec that whole steps decide between, the fastest first.
  struct Contest {
    MatVec mat_vec;
    std::vector<std::int32_t> builds;
  };

  void tune(std::span<const StepPhase* const> phases, std::size_t launch, const MatVec& mat_vec,
            std::vector<VariantTime>& times);
  // All by the fastest builds, or all by the first ones: whichever a step is faster with.
  void begin_contests(const std::function<double()>& step_seconds);

  PhaseTrial& trial_;
  MatVecChoices& choices_;
  const Card card_;
  std::vector<Contest> contests_;
};

}  // namespace unpaced
