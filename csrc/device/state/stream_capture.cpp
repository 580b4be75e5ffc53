#include "device/state/stream_capture.h"

#include <memory>
#include <type_traits>

#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

struct GraphDestroyed {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};

}  // namespace

cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue) {
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

std::vector<CapturedKernel> captured_kernels(cudaStream_t stream,
                                             const std::function<void()>& enqueue) {
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDestroyed> graph(
      capture(stream, enqueue));
  std::size_t n = 0;
  cuda_check(cudaGraphGetNodes(graph.get(), nullptr, &n), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(n);
  cuda_check(cudaGraphGetNodes(graph.get(), nodes.data(), &n), "cudaGraphGetNodes");
  std::vector<CapturedKernel> kernels;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    cuda_check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams launch = {};
    const char* name = nullptr;
    if (cudaGraphKernelNodeGetParams(node, &launch) != cudaSuccess ||
        cudaFuncGetName(&name, launch.func) != cudaSuccess) {
      cudaGetLastError();
    }
    kernels.push_back({name == nullptr ? "" : name, launch.gridDim});
  }
  return kernels;
}

}  // namespace unpaced
