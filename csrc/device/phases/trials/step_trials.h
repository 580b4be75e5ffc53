// What a start finds out about a step's phases: which of them are ours, and by which builds.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/graph/step_phase.h"
#include "device/kernels/choice_file.h"
#include "device/phases/own_kernels.h"
#include "device/phases/trials/phase_trial.h"
#include "device/phases/trials/phase_tuner.h"
#include "model/decode_loop.h"

namespace unpaced {

class StepTrials {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive this. Without a tuner only bits count. What it measures is put into `kept`, and
  // what is there is not measured again; bits are always compared. until: no other shape is
  // measured after it.
  StepTrials(PhaseTrial& trial, PhaseTuner* tuner, ChoiceFile& kept, Clock::time_point until)
      : trial_(trial), tuner_(tuner), kept_(kept), until_(until) {}

  // Each shape of the phases that may be ours, those that read most first. What is not to be ours
  // `kernels` refuses from then on. Throws EngineLost where the GPU hangs.
  std::vector<PhaseTrialReport> run(const StepGraph& graph, std::span<const StepPhase> phases,
                                    OwnKernels& kernels);
  // After run(): between builds that are nearly as fast, by whole steps (PhaseTuner::settle). What
  // becomes of run()'s choices is put into `kept`, bits compared once more. Throws as run().
  void settle(const StepGraph& graph, std::span<const StepPhase> phases, OwnKernels& kernels,
              Clock::time_point until);
  // The builds of each shape alone: ggml has no kernels to compare with.
  std::vector<PhaseTrialReport> tune(const StepGraph& graph, std::span<const StepPhase> phases);

 private:
  struct Shape;

  [[nodiscard]] static std::vector<Shape> shapes_of(const StepGraph& graph,
                                                    std::span<const StepPhase> phases);
  // Why phases of a shape stay ggml's; empty: they need not.
  [[nodiscard]] std::string why_ggml(const Shape& shape, PhaseTrialReport& told);
  [[nodiscard]] std::string why_ggml_by_time(const Shape& shape, PhaseTrialReport& told);

  PhaseTrial& trial_;
  PhaseTuner* const tuner_;
  ChoiceFile& kept_;
  const Clock::time_point until_;
  std::vector<std::pair<std::string, const StepPhase*>>
      measured_;  // ours: a shape, one of its phases
};

}  // namespace unpaced
