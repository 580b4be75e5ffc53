// Whose kernels compute the steps that several sequences make together.
#pragma once

#include <chrono>
#include <vector>

#include "device/loop/own_step.h"
#include "device/loop/self_test/lane_self_test.h"
#include "model/decode_loop.h"

namespace unpaced {

// Each number of rows is tested with kernels of ours, and with ggml's where these differ; and with
// padding, which stops where bits are others with it. With
// kAuto the steps are timed, and from the fewest rows on for which ggml's are faster they are
// ggml's: columns cost ours more than rows do. Rows that are to be as alone have no other kernels
// than ours.
class LaneTrials {
 public:
  // limit: how long the GPU may be silent; 0: for ever. All else outlives this.
  LaneTrials(const Model& model, LlamaBridge& bridge, DeviceLoop& loop, OwnStep& step,
             std::chrono::microseconds limit)
      : test_(model, bridge, loop, step.has_rows_as_alone()),
        bridge_(bridge),
        loop_(loop),
        step_(step),
        limit_(limit) {}

  // From two rows on. Throws std::runtime_error where ggml's kernels differ too, EngineLost where
  // the GPU hangs.
  [[nodiscard]] std::vector<LaneStepReport> run(StepKernels kernels);

 private:
  void check(LaneStepReport& report);
  void measure(LaneStepReport& report);
  // Of steps and graphs.
  void clear_loop();
  void leave_to_ggml(LaneStepReport& report, const std::string& why);

  LaneSelfTest test_;
  const LlamaBridge& bridge_;
  DeviceLoop& loop_;
  OwnStep& step_;
  const std::chrono::microseconds limit_;
};

}  // namespace unpaced
