// One executable CUDA graph of a step for each window of KV cells.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <map>

#include "device/llama/llama_bridge.h"
#include "device/phases/step_program.h"
#include "model/loop_memory.h"

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
  // program: of each window's step. At most n_max graphs; the oldest makes room.
  WindowGraphs(LlamaBridge& bridge, MakeStepProgram program, WindowLaunch launch,
               std::size_t n_max = kMaxWindowGraphs);
  ~WindowGraphs();
  WindowGraphs(const WindowGraphs&) = delete;
  WindowGraphs& operator=(const WindowGraphs&) = delete;

  // From the cache, or captured now: some 10 ms of this thread alone. Throws std::runtime_error.
  cudaGraphExec_t get(const Window& window);
  // It is as if the graph, which is there, had just been used: others make room before it.
  void keep(const Window& window) {
    by_age_.splice(by_age_.begin(), by_age_, graphs_.at(window).age);
  }
  // Where a window's graph leaves its logits; after it has gone, where there is room for them.
  [[nodiscard]] float* logits(const Window& window) const;
  [[nodiscard]] std::size_t size() const noexcept { return graphs_.size(); }
  [[nodiscard]] bool has(const Window& window) const {
    return is_valid() && graphs_.contains(window);
  }
  // All of them; they are captured anew when they are wanted.
  void clear() noexcept;

 private:
  struct Entry {
    cudaGraphExec_t executable;
    float* logits;
    std::list<Window>::iterator age;
  };

  // The graphs compute where there still is memory.
  [[nodiscard]] bool is_valid() const { return version_ == bridge_.memory_version(); }
  [[nodiscard]] cudaGraphExec_t capture(const Window& window);
  // Runs `enqueue`, whose work becomes the graph's.
  template <class Enqueue>
  void capture_into(cudaGraph_t graph, Enqueue enqueue);
  // Adds the node of the site's condition; returns the graph of its body.
  [[nodiscard]] cudaGraph_t add_conditional(cudaGraph_t graph, const StepProgram& program,
                                            const StepSite& site);

  LlamaBridge& bridge_;
  const MakeStepProgram program_;
  const WindowLaunch launch_;
  const std::size_t n_max_;
  std::map<Window, Entry> graphs_;
  std::list<Window> by_age_;  // the newest first
  std::uint64_t version_ = 0;
};

}  // namespace unpaced
