#include "device/phases/step_program.h"

#include <stdexcept>
#include <utility>

namespace unpaced {

StepProgram& StepProgram::add(std::int32_t end, Kernels kernels) {
  if (end < end_) throw std::runtime_error("a step's phases are not in the graph's order");
  phases_.push_back({{.begin = end_, .end = end}, std::move(kernels)});
  end_ = end;
  return *this;
}

StepProgram& StepProgram::guard_by(Kernels kernels) {
  guard_ = std::move(kernels);
  return *this;
}

void StepProgram::enqueue(LlamaBridge& bridge, const StepSite& site) const {
  if (end_ != bridge.nodes().end) throw std::runtime_error("a step's phases leave nodes out");
  for (const Phase& phase : phases_) {
    if (phase.kernels) {
      phase.kernels(site);
    } else {
      bridge.run(phase.nodes);
    }
  }
}

}  // namespace unpaced
