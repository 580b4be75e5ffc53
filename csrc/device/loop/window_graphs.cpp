#include "device/loop/window_graphs.h"

#include <utility>

#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

struct GraphOwner {
  cudaGraph_t graph = nullptr;
  GraphOwner() { cuda_check(cudaGraphCreate(&graph, 0), "cudaGraphCreate"); }
  ~GraphOwner() { cudaGraphDestroy(graph); }
  GraphOwner(const GraphOwner&) = delete;
  GraphOwner& operator=(const GraphOwner&) = delete;
};

}  // namespace

WindowGraphs::WindowGraphs(LlamaBridge& bridge, MakeStepProgram program, WindowLaunch launch,
                           std::size_t n_max)
    : bridge_(bridge), program_(std::move(program)), launch_(launch), n_max_(n_max) {}

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
  if (graphs_.size() >= n_max_) {
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

template <class Enqueue>
void WindowGraphs::capture_into(cudaGraph_t graph, Enqueue enqueue) {
  const cudaStream_t stream = bridge_.stream();
  cuda_check(cudaStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0,
                                           cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCaptureToGraph");
  cudaGraph_t captured = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);
    cudaGetLastError();
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
}

cudaGraphExec_t WindowGraphs::capture(const Window& window) {
  bridge_.open(window);
  const StepProgram program = program_(bridge_);
  StepSite site{.stream = bridge_.stream(),
                .window = window,
                .logits = bridge_.logits(),
                .condition = {},
                .loops = launch_ == WindowLaunch::kLoop};
  const GraphOwner owner;
  cudaGraph_t step = owner.graph;
  if (launch_ != WindowLaunch::kStep) {
    // 1 at every launch: of a loop the first step is always made.
    cuda_check(cudaGraphConditionalHandleCreate(&site.condition, owner.graph, 1,
                                                cudaGraphCondAssignDefault),
               "cudaGraphConditionalHandleCreate");
    step = add_conditional(owner.graph, program, site);
  }
  capture_into(step, [&] { program.enqueue(bridge_, site); });
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, owner.graph, 0), "cudaGraphInstantiate");
  return executable;
}

cudaGraph_t WindowGraphs::add_conditional(cudaGraph_t graph, const StepProgram& program,
                                          const StepSite& site) {
  cudaGraphNode_t guard = nullptr;
  std::size_t n_guards = 0;
  if (!site.loops) {
    capture_into(graph, [&] { program.enqueue_guard(site); });
    n_guards = 1;
    cuda_check(cudaGraphGetNodes(graph, &guard, &n_guards), "cudaGraphGetNodes");
  }
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = site.condition;
  params.conditional.type = site.loops ? cudaGraphCondTypeWhile : cudaGraphCondTypeIf;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  cuda_check(cudaGraphAddNode(&node, graph, &guard, nullptr, n_guards, &params),
             "cudaGraphAddNode");
  return params.conditional.phGraph_out[0];
}

}  // namespace unpaced
