// One executable CUDA graph for each window of KV cells: the decode step's kernels, then ours.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <map>

#include "device/draw/masked_row.h"
#include "device/draw/sample_kernels.h"
#include "device/llama/llama_bridge.h"

namespace unpaced {

// What a launch of a graph does.
enum class WindowLaunch : std::uint8_t {
  kLoop,         // steps until the loop is left: the step is the body of a WHILE node
  kGuardedStep,  // a step, or nothing after the loop has been left: the body of an IF node
  kStep,
};

// Decode thread only.
class WindowGraphs {
 public:
  // `arguments` without logits and loop. kept: each step keeps its row of logits there; null:
  // nowhere.
  WindowGraphs(LlamaBridge& bridge, const StepKernelArguments& arguments, WindowLaunch launch,
               const MaskedRow* kept = nullptr);
  ~WindowGraphs();
  WindowGraphs(const WindowGraphs&) = delete;
  WindowGraphs& operator=(const WindowGraphs&) = delete;

  // From the cache, or captured now: some 10 ms of this thread, none of the GPU. Throws
  // std::runtime_error.
  cudaGraphExec_t get(const Window& window);
  // Where a window's graph leaves its row of logits; after it has gone, where there is room for
  // one.
  [[nodiscard]] float* logits(const Window& window) const;
  [[nodiscard]] std::size_t size() const noexcept { return graphs_.size(); }
  [[nodiscard]] bool has(const Window& window) const {
    return is_valid() && graphs_.contains(window);
  }

 private:
  struct Entry {
    cudaGraphExec_t executable;
    float* logits;
    std::list<Window>::iterator age;
  };

  // The graphs compute where there still is memory.
  [[nodiscard]] bool is_valid() const { return version_ == bridge_.memory_version(); }
  void clear() noexcept;
  [[nodiscard]] cudaGraphExec_t capture(const Window& window);
  // Runs `enqueue`, whose work becomes the graph's.
  template <class Enqueue>
  void capture_into(cudaGraph_t graph, Enqueue enqueue);
  // Adds the node of `handle`; returns the graph of its body.
  [[nodiscard]] cudaGraph_t add_conditional(cudaGraph_t graph, cudaGraphConditionalHandle handle);

  LlamaBridge& bridge_;
  const StepKernelArguments arguments_;
  const WindowLaunch launch_;
  const MaskedRow* const kept_;
  std::map<Window, Entry> graphs_;
  std::list<Window> by_age_;  // the newest first
  std::uint64_t version_ = 0;
};

}  // namespace unpaced
