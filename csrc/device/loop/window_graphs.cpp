#include "device/loop/window_graphs.h"

#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

constexpr std::size_t kMaxGraphs = 160;  // 40 960 cells of one stream; the oldest makes room

struct GraphOwner {
  cudaGraph_t graph = nullptr;
  GraphOwner() { cuda_check(cudaGraphCreate(&graph, 0), "cudaGraphCreate"); }
  ~GraphOwner() { cudaGraphDestroy(graph); }
  GraphOwner(const GraphOwner&) = delete;
  GraphOwner& operator=(const GraphOwner&) = delete;
};

}  // namespace

WindowGraphs::WindowGraphs(LlamaBridge& bridge, const StepKernelArguments& arguments, bool loops,
                           const MaskedRow* kept)
    : bridge_(bridge), arguments_(arguments), loops_(loops), kept_(kept) {}

WindowGraphs::~WindowGraphs() { clear(); }

void WindowGraphs::clear() noexcept {
  // They may still run; CUDA keeps a destroyed graph until it has ended.
  for (auto& [window, entry] : graphs_) cudaGraphExecDestroy(entry.executable);
  graphs_.clear();
  by_age_.clear();
}

float* WindowGraphs::logits(const Window& window) const {
  return has(window) ? graphs_.at(window).logits : bridge_.logits();
}

cudaGraphExec_t WindowGraphs::get(const Window& window) {
  if (!is_valid()) clear();
  version_ = bridge_.memory_version();
  if (const auto found = graphs_.find(window); found != graphs_.end()) {
    by_age_.splice(by_age_.begin(), by_age_, found->second.age);
    return found->second.executable;
  }
  if (graphs_.size() >= kMaxGraphs) {
    cudaGraphExecDestroy(graphs_.at(by_age_.back()).executable);  // as in clear()
    graphs_.erase(by_age_.back());
    by_age_.pop_back();
  }
  const cudaGraphExec_t executable = capture(window);
  if (!is_valid()) clear();  // the capture itself has moved what the others compute in
  version_ = bridge_.memory_version();
  by_age_.push_front(window);
  graphs_[window] = {executable, bridge_.logits(), by_age_.begin()};
  return executable;
}

cudaGraphExec_t WindowGraphs::capture(const Window& window) {
  bridge_.open(window);
  StepKernelArguments arguments = arguments_;
  arguments.logits = bridge_.logits();
  arguments.loops = loops_;
  const GraphOwner owner;
  if (loops_) {
    // 1 at every launch: the first step is always made.
    cuda_check(cudaGraphConditionalHandleCreate(&arguments.loop, owner.graph, 1,
                                                cudaGraphCondAssignDefault),
               "cudaGraphConditionalHandleCreate");
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = arguments.loop;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    cudaGraphNode_t node = nullptr;
    cuda_check(cudaGraphAddNode(&node, owner.graph, nullptr, nullptr, 0, &params),
               "cudaGraphAddNode");
    capture_step(params.conditional.phGraph_out[0], arguments);
  } else {
    capture_step(owner.graph, arguments);
  }
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, owner.graph, 0), "cudaGraphInstantiate");
  return executable;
}

void WindowGraphs::capture_step(cudaGraph_t graph, const StepKernelArguments& arguments) {
  const cudaStream_t stream = bridge_.stream();
  cuda_check(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                           cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCaptureToGraph");
  cudaGraph_t captured = nullptr;
  try {
    bridge_.run();
    if (kept_ != nullptr) kept_->keep(arguments.logits, stream);
    launch_step_kernels(arguments, stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
}

}  // namespace unpaced
