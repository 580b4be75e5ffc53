// A CUDA graph of some work, launched by itself and timed.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>

namespace unpaced {

class TimedGraph {
 public:
  // `enqueue` gives the stream the work, which is captured. Throws std::runtime_error.
  TimedGraph(cudaStream_t stream, const std::function<void()>& enqueue);
  ~TimedGraph();
  TimedGraph(const TimedGraph&) = delete;
  TimedGraph& operator=(const TimedGraph&) = delete;

  // Runs it once, by the GPU's clock. Throws as await_stream().
  [[nodiscard]] double seconds(std::chrono::microseconds limit = {});

 private:
  const cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace unpaced
