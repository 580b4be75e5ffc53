// Where the token loop runs, and why there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/residency.h"

namespace unpaced {

enum class DecodeLoop : std::int32_t {
  kHost = 0,    // llama_decode and the CPU's sampling core, token by token
  kAhead = 1,   // the GPU samples and feeds itself; the host launches every step, some ahead
  kDevice = 2,  // the GPU runs the loop: one launch for a window of KV cells
};
inline constexpr std::int32_t kDecodeLoopAuto = -1;  // the best that is exact

// Whose kernels compute a step of the device's loop.
enum class StepKernels : std::int32_t {
  kGgml = 0,  // all of them ggml's
  kOwn = 1,   // ours, wherever they give ggml's bits
  kAuto = 2,  // of those the ones that are not slower here
};

// Phases of a step that are alike.
struct StepPhaseReport {
  std::string phase;  // norm, attention input, …
  bool ours = false;
  std::string why;  // ggml's: why not ours
  std::int32_t n = 0;
};

// What the start-up test of a shape of phases found.
struct PhaseTrialReport {
  std::string phase;
  std::int32_t n_rows = 1;  // of the step: sequences
  std::int32_t n = 0;       // phases of the shape
  double ms = 0;            // that the test took
  bool measured = false;    // kAuto, where there was time
  bool remembered = false;  // kAuto: an earlier start has measured it
  double ggml_us = 0;       // measured: what one phase takes, weights from memory
  double own_us = 0;
};

// Prompts of so many tokens, from nine on of up to so many (prompt_rows()), and what the start-up
// test found of those that it computes.
struct PromptLengthReport {
  std::int32_t n_tokens = 0;
  std::string why;        // why llama_decode computes them; empty: a captured graph does
  double own_ms = 0;      // that one takes; 0: none was computed
  double decode_ms = 0;   // likewise, with llama_decode
  double capture_ms = 0;  // that its graph takes, once
};

// Steps that so many requests make together, and what the start-up test found.
struct LaneStepReport {
  std::int32_t n_rows = 0;
  std::int32_t n_graph_rows = 0;  // with padding
  std::string why;     // why all of its kernels are ggml's; empty: as far as there are ours
  double own_us = 0;   // kAuto, of some numbers of rows: what a step takes without the draw
  double ggml_us = 0;  // likewise, with ggml's kernels
};

// What a card has, and what was chosen for it. Compute capabilities are as NVIDIA writes them: 9.0.
struct CardReport {
  std::int32_t index = -1;  // CUDA's; below 0: no card runs the loop
  std::string name;
  std::string compute_capability;
  std::string code_from;  // of the PTX that the code which runs was compiled from
  std::string code_for;   // whose instructions it has; not the same: the driver has compiled it
  std::string built_for;  // CMake's list of architectures
  std::string draw_team;  // cluster, grid or block: who draws from a whole row of logits
  std::int32_t n_draw_blocks = 0;
  std::string draw_reason;             // why one block draws alone; empty: it does not
  bool programmatic_launches = false;  // llama.cpp's kernels overlap their beginnings and ends
};

// Constant once the engine is ready.
struct DecodeLoopReport {
  DecodeLoop loop = DecodeLoop::kHost;
  std::string reason;  // why not a better one; empty: it is the best
  CardReport card;
  std::string choice;  // of one card or of several, one sentence; empty: there was none
  // Where the driver compiles the kernels, at their first use: capability of the PTX; else empty.
  std::string compiled_from;
  Residency residency;
  std::vector<StepPhaseReport> phases;  // in the step's order; none: the host's loop
  std::vector<PhaseTrialReport> phase_trials;
  std::int32_t n_lanes = 0;  // requests that the GPU's loop decodes together, at most
  std::string lanes_why;     // why no more; empty: as many as were asked for, or as there are slots
  std::vector<LaneStepReport> lane_steps;          // from two rows on
  std::vector<PromptLengthReport> prompt_lengths;  // none: llama_decode computes all prompts
  std::string prompts_why;                         // why; empty: see prompt_lengths
};

}  // namespace unpaced
