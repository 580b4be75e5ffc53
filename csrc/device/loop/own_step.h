// A step's program of ggml's kernels and ours.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "device/kernels/card.h"
#include "device/llama/llama_bridge.h"
#include "device/phases/attention_parts.h"
#include "device/phases/mat_vec_choices.h"
#include "device/phases/own_kernels.h"
#include "device/phases/row_windows.h"
#include "device/phases/step_program.h"
#include "device/state/cuda_memory.h"
#include "model/decode_loop.h"
#include "model/loop_memory.h"

namespace unpaced {

class PhaseTrial;

// Decode thread only.
class OwnStep {
 public:
  // choices_folder: where kAuto keeps what it has measured; empty: nowhere. rows_as_alone: each of
  // several rows has the bits that it has by itself; they are in streams of their own.
  OwnStep(const LlamaBridge& bridge, StepKernels choice, std::string choices_folder = "",
          bool rows_as_alone = false);

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
  // From now on all phases of one row are ggml's.
  void give_up(const std::string& why, const LlamaBridge& bridge);

  // The same as prepare() for each shape of steps of several rows, up to so many: those numbers of
  // rows that there are builds for, and what is found goes for the ones between. After it.
  void prepare_rows(LlamaBridge& bridge, std::int32_t n_rows_most, std::chrono::microseconds limit);
  [[nodiscard]] bool has_rows_as_alone() const noexcept { return rows_as_alone_; }
  // Cells of the largest window in which rows are as alone; after prepare_rows().
  [[nodiscard]] std::int32_t n_row_cells() const noexcept { return row_windows_.n_cells(); }
  // Steps of so many rows are ggml's from now on; empty: as far as there are kernels they are ours.
  void leave_rows(std::int32_t n_rows, const std::string& why) { why_ggml_[n_rows] = why; }
  // Whether a graph of so many rows has had phases of ours.
  [[nodiscard]] bool has_own(std::int32_t n_rows) const { return rows_with_own_.contains(n_rows); }
  // Why all phases of so many rows are ggml's; empty: they are not.
  [[nodiscard]] std::string why_ggml(std::int32_t n_rows) const;

  // Of the graph that was opened last.
  [[nodiscard]] const std::vector<StepPhaseReport>& report() const noexcept { return report_; }
  // Of prepare(), in its order.
  [[nodiscard]] const std::vector<PhaseTrialReport>& trials() const noexcept { return trials_; }

 private:
  struct Plan;

  [[nodiscard]] std::shared_ptr<const Plan> plan(const LlamaBridge& bridge);
  // So much memory that lives as long as this.
  [[nodiscard]] std::byte* scratch_of(std::size_t n_bytes);
  // Of the graph that is open.
  void test(LlamaBridge& bridge, std::chrono::microseconds limit);
  void test_attention(LlamaBridge& bridge, std::chrono::microseconds limit);
  // What ggml does with one row in each window, up to where it has another kernel.
  void find_row_windows(LlamaBridge& bridge);
  void clear_cache_of(PhaseTrial& trial);
  void tell(const Plan& plan);

  const Card card_;
  const StepKernels choice_;
  const std::string choices_folder_;
  OwnKernels kernels_;
  AttentionParts attention_parts_;  // of all windows so far
  const bool rows_as_alone_;
  RowWindows row_windows_{kWindowCells};
  std::unique_ptr<DeviceArray<std::uint16_t>> row_parts_;  // row_windows_' parts
  MatVecChoices choices_;
  std::map<std::int32_t, std::string> why_ggml_;  // by rows: why all phases are ggml's
  std::set<std::int32_t> rows_with_own_;          // numbers of rows that have phases of ours
  std::list<DeviceArray<std::byte>> scratch_;     // the last one is the largest
  // For the trials; not theirs, as whoever frees it waits for the GPU.
  std::unique_ptr<DeviceArray<std::byte>> trial_;
  std::vector<StepPhaseReport> report_;
  std::vector<PhaseTrialReport> trials_;
  bool has_own_ = false;
};

}  // namespace unpaced
