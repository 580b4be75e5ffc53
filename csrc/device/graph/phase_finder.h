// What phases of ours there can be in a step, each by itself.
#pragma once

#include <string>
#include <vector>

#include "device/graph/step_phase.h"

namespace unpaced {

struct PossiblePhases {
  std::vector<StepPhase> phases;  // in order; nobody rounds their inputs yet
  std::vector<std::string> why;   // of each part that is in none of them: why
};

// Parts that follow one another and have kernels.
[[nodiscard]] PossiblePhases find_phases(const std::vector<StepPart>& parts,
                                         const PhaseKernels& kernels);

}  // namespace unpaced
