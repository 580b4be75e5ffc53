// What computes a step, phase by phase: parts of llama.cpp's graph by ggml's kernels, and kernels
// of ours, in the place of nodes or after them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "device/llama/llama_bridge.h"

namespace unpaced {

// Where a step is captured.
struct StepSite {
  cudaStream_t stream;
  Window window;
  float* logits;                         // where the graph leaves them
  cudaGraphConditionalHandle condition;  // of the node whose body the step is, if it is one's
  bool loops;                            // that node is a WHILE
};

// Phases follow one another in the graph's order and leave no node out: each begins where the one
// before it has ended. Three things hold for whoever writes one:
// * A border must not cut what ggml computes by one kernel (a norm and its weight, a product and
//   its residual, gate and up): cut, it takes other kernels. tests/gpu/cpp/step_program_test.cpp
//   finds out.
// * The compute buffer's tensors are recycled: a kernel of ours writes what later nodes read, when
//   all that overlaps it has been read; what is in between lives in memory of its own.
// * Everything goes to the site's stream.
class StepProgram {
 public:
  using Kernels = std::function<void(const StepSite&)>;  // enqueues them; may throw

  // ggml's kernels for the nodes up to `end`.
  StepProgram& by_ggml(std::int32_t end) { return add(end, {}); }
  // Kernels of ours in their place.
  StepProgram& by_ours(std::int32_t end, Kernels kernels) { return add(end, std::move(kernels)); }
  // Kernels of ours that stand for no node.
  StepProgram& then(Kernels kernels) { return add(end_, std::move(kernels)); }

  // What sets the site's condition before a step that may be none: whether it is made.
  StepProgram& guard_by(Kernels kernels);

  void enqueue_guard(const StepSite& site) const { guard_(site); }
  // Enqueues all phases; also while the stream is captured. Throws std::runtime_error.
  void enqueue(LlamaBridge& bridge, const StepSite& site) const;

 private:
  struct Phase {
    NodeRange nodes;
    Kernels kernels;  // empty: ggml's
  };

  StepProgram& add(std::int32_t end, Kernels kernels);

  Kernels guard_;
  std::vector<Phase> phases_;
  std::int32_t end_ = 0;
};

// Adds the phases of the graph that is open in the bridge.
using AddGraph = std::function<void(StepProgram&, const LlamaBridge&)>;

// Makes the program of the graph that is open in the bridge: where its parts end hangs on it.
using MakeStepProgram = std::function<StepProgram(const LlamaBridge&)>;

}  // namespace unpaced
