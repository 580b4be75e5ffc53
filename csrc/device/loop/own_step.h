// A step's program of ggml's kernels and ours.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "device/kernels/card.h"
#include "device/llama/llama_bridge.h"
#include "device/phases/attention_parts.h"
#include "device/phases/mat_vec_choices.h"
#include "device/phases/own_kernels.h"
#include "device/phases/step_program.h"
#include "device/state/cuda_memory.h"
#include "model/decode_loop.h"

namespace unpaced {

class PhaseTrial;

// Decode thread only.
class OwnStep {
 public:
  // choices_folder: where kAuto keeps what it has measured; empty: nowhere.
  OwnStep(const LlamaBridge& bridge, StepKernels choice, std::string choices_folder = "");

  // Once, before anything else: compares each shape of phase with ggml's kernels, on the smallest
  // window, and attention on a larger one too: some milliseconds. With kAuto it measures them too,
  // and each build of their mat-vecs: those that read most first, and no other shape after 150 ms.
  // Writes rows of the KV. limit: how long the GPU may be silent; 0: for ever. Throws what a broken
  // device throws, and EngineLost where it hangs: not within the constructor, as
  // DeviceStepper::prepare().
  void prepare(LlamaBridge& bridge, std::chrono::microseconds limit);

  // The phases of the graph that is open in the bridge. They must be enqueued before another one
  // is opened; what was captured stays valid for as long as this lives.
  void add_to(StepProgram& program, const LlamaBridge& bridge);
  [[nodiscard]] bool has_own() const noexcept { return has_own_; }
  // From now on all phases are ggml's.
  void give_up(const std::string& why, const LlamaBridge& bridge);

  // Of the graph that was opened last.
  [[nodiscard]] const std::vector<StepPhaseReport>& report() const noexcept { return report_; }
  // Of prepare(), in its order.
  [[nodiscard]] const std::vector<PhaseTrialReport>& trials() const noexcept { return trials_; }

 private:
  struct Plan;

  [[nodiscard]] std::shared_ptr<const Plan> plan(const LlamaBridge& bridge);
  // So much memory that lives as long as this.
  [[nodiscard]] std::byte* scratch_of(std::size_t n_bytes);
  void test(LlamaBridge& bridge, std::chrono::microseconds limit);
  void test_attention(LlamaBridge& bridge, std::chrono::microseconds limit);
  void clear_cache_of(PhaseTrial& trial);
  void tell(const Plan& plan);

  const Card card_;
  const StepKernels choice_;
  const std::string choices_folder_;
  OwnKernels kernels_;
  AttentionParts attention_parts_;  // of all windows so far
  MatVecChoices choices_;
  std::string why_none_;                       // why all phases are ggml's; empty: they need not be
  std::list<DeviceArray<std::byte>> scratch_;  // the last one is the largest
  // For the trials; not theirs, as whoever frees it waits for the GPU.
  std::unique_ptr<DeviceArray<std::byte>> trial_;
  std::vector<StepPhaseReport> report_;
  std::vector<PhaseTrialReport> trials_;
  bool has_own_ = false;
};

}  // namespace unpaced
