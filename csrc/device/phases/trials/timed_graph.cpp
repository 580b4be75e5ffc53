#include "device/phases/trials/timed_graph.h"

#include "decode/engine_lost.h"
#include "device/state/cuda_memory.h"
#include "device/state/stream_capture.h"
#include "device/state/stream_wait.h"

namespace unpaced {
TimedGraph::TimedGraph(cudaStream_t stream, const std::function<void()>& enqueue)
    : stream_(stream) {
  const cudaGraph_t graph = capture(stream, enqueue);
  const cudaError_t status = cudaGraphInstantiate(&executable_, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(status, "cudaGraphInstantiate");
  cuda_check(cudaEventCreate(&begin_), "cudaEventCreate");
  cuda_check(cudaEventCreate(&end_), "cudaEventCreate");
}

TimedGraph::~TimedGraph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

double TimedGraph::seconds(std::chrono::microseconds limit) {
  cuda_check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
  cuda_check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch");
  cuda_check(cudaEventRecord(end_, stream_), "cudaEventRecord");
  try {
    await_stream(stream_, limit);
  } catch (const EngineLost&) {
    executable_ = nullptr;  // to destroy what a GPU is in the midst of could wait for it
    begin_ = end_ = nullptr;
    throw;
  }
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return milliseconds / 1e3;
}

}  // namespace unpaced
