// A step in parts against the step as a whole: as many kernels, and the same logits, bit by bit,
// with borders after layers and halves of layers. A border within what ggml computes by one kernel
// must be noticed.
//
//   step_program_test MODEL.gguf
#include "device/phases/step_program.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "device/state/cuda_memory.h"
#include "engine/stepper_factory.h"
#include "model/model.h"

using namespace unpaced;

namespace {

struct Made {
  std::size_t n_kernels = 0;  // and copies
  std::vector<float> logits;
};

// Runs the program's graph on a KV that no other step has written.
Made make_step(LlamaBridge& bridge, std::size_t n_vocab, const StepProgram& program) {
  cudaGraph_t graph = nullptr;
  const StepSite site{.stream = bridge.stream(),
                      .window = {.stream = 0, .n_kv = bridge.window_cells(1)},
                      .logits = bridge.logits(),
                      .condition = {},
                      .loops = false};
  cuda_check(cudaStreamBeginCapture(site.stream, cudaStreamCaptureModeRelaxed), "capture");
  program.enqueue(bridge, site);
  cuda_check(cudaStreamEndCapture(site.stream, &graph), "capture");
  Made made;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &made.n_kernels), "cudaGraphGetNodes");
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  fill_now(site.logits, 0, n_vocab * sizeof(float));
  cuda_check(cudaGraphLaunch(executable, site.stream), "launch");
  cuda_check(cudaStreamSynchronize(site.stream), "run");
  made.logits.resize(n_vocab);
  cuda_check(
      cudaMemcpy(made.logits.data(), site.logits, n_vocab * sizeof(float), cudaMemcpyDeviceToHost),
      "cudaMemcpy");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return made;
}

bool equal(const Made& a, const Made& b) {
  return std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

bool throws(LlamaBridge& bridge, const StepProgram& program) {
  try {
    program.enqueue(bridge, {.stream = bridge.stream(),
                             .window = {},
                             .logits = bridge.logits(),
                             .condition = {},
                             .loops = false});
  } catch (const std::exception&) {
    return true;
  }
  return false;
}

// Where they differ, and by how much.
void show_difference(const char* what, const Made& a, const Made& b) {
  std::size_t n = 0;
  std::size_t first = a.logits.size();
  float most = 0.0F;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    if (std::memcmp(&a.logits[i], &b.logits[i], sizeof(float)) == 0) continue;
    first = std::min(first, i);
    most = std::max(most, std::fabs(a.logits[i] - b.logits[i]));
    ++n;
  }
  std::printf("  %s: %zu of %zu logits differ", what, n, a.logits.size());
  if (n > 0) {
    std::printf(", the first is %zu (%.9g, %.9g), by %.3g at most", first, a.logits[first],
                b.logits[first], most);
  }
  std::printf("; %zu and %zu kernels\n", a.n_kernels, b.n_kernels);
}

int n_failed = 0;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what);
  if (!holds) ++n_failed;
}

void test(LlamaBridge& bridge, const Model& model) {
  const auto n_vocab = static_cast<std::size_t>(model.n_vocab());
  bridge.open({.stream = 0, .n_kv = bridge.window_cells(1)});
  const std::int32_t end = bridge.nodes().end;
  const auto after = [&](const std::string& name) { return bridge.end_of_node(name); };

  StepProgram whole;
  const Made expected = make_step(bridge, n_vocab, whole.by_ggml(end));
  bool has_values = false;
  for (const float x : expected.logits) has_values = has_values || x != 0.0F;
  expect(has_values, "the step as a whole has logits");

  StepProgram halves;
  for (std::int32_t i = 0; i < llama_model_n_layer(model.get()); ++i) {
    const std::string layer = std::to_string(i);
    halves.by_ggml(after("ffn_inp-" + layer)).by_ggml(after("l_out-" + layer));
  }
  int n_calls = 0;
  halves.then([&](const StepSite&) { ++n_calls; }).by_ggml(end);
  const Made in_halves = make_step(bridge, n_vocab, halves);
  std::printf("%zu kernels as a whole, %zu in halves of layers\n", expected.n_kernels,
              in_halves.n_kernels);
  expect(n_calls == 1, "the phase that is ours is enqueued once");
  expect(in_halves.n_kernels == expected.n_kernels, "halves of layers have the whole's kernels");
  expect(equal(in_halves, expected), "halves of layers have the whole's logits");
  if (!equal(in_halves, expected)) {
    // Whether it is the parts, or a step that is not the same twice.
    show_difference("whole and halves", expected, in_halves);
    for (int i = 0; i < 3; ++i) {
      show_difference("whole and whole again", expected, make_step(bridge, n_vocab, whole));
      show_difference("halves and halves again", in_halves, make_step(bridge, n_vocab, halves));
    }
  }

  StepProgram cut;
  const Made in_pieces = make_step(bridge, n_vocab, cut.by_ggml(after("norm-0")).by_ggml(end));
  expect(in_pieces.n_kernels > expected.n_kernels, "a norm cut from its weight is noticed");

  StepProgram without;  // the logits
  const std::int32_t last = end - 1;
  const Made less =
      make_step(bridge, n_vocab, without.by_ggml(last).by_ours(end, [](const StepSite&) {}));
  expect(less.n_kernels < expected.n_kernels && !equal(less, expected),
         "nodes that are ours are not ggml's");

  StepProgram too_short;
  expect(throws(bridge, too_short.by_ggml(last)), "a program that leaves nodes out is refused");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    EngineConfig config;
    config.model_path = argv[1];
    config.n_ctx = 1024;
    config.flash_attn = 1;
    config.warmup = false;
    static_cast<void>(configure_device(config));
    init_backends();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    Model model(config, progress, stop);
    LlamaBridge bridge(model.context());
    test(bridge, model);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
