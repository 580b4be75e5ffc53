// Many steps by a program with kernels of ours beside llama_decode: all logits, bit by bit.
//
//   many_steps_test MODEL.gguf [STEPS [STEPS A TEXT [CACHE TYPE]]]
//
// Texts of random tokens; at each the step is made twice in the same cell, by llama_decode and then
// by the window's graph. 1000 steps, texts of 500, a cache of F16 where nothing is said. The last
// step's graph is all that ncu sees with --profile-from-start off.
#include <cuda_profiler_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "device/loop/own_step.h"
#include "device/loop/window_graphs.h"
#include "engine/stepper_factory.h"
#include "llama.h"
#include "model/model.h"
#include "step_run.h"

using namespace unpaced;

namespace {

constexpr std::int32_t kCacheTypeQ8 = 8;

// What was compared.
struct Compared {
  std::int32_t n_steps = 0;
  std::int32_t n_wrong = 0;      // steps with a logit that differs
  std::int32_t first_wrong = 0;  // its position
  std::int32_t n_kv_most = 0;    // cells of the largest window
};

class ManySteps {
 public:
  ManySteps(const Model& model, LlamaBridge& bridge, OwnStep& own, std::int32_t n_steps)
      : model_(model),
        n_in_all_(n_steps),
        bridge_(bridge),
        graphs_(
            bridge,
            [&own](const LlamaBridge& opened) {
              StepProgram program;
              own.add_to(program, opened);
              return program;
            },
            WindowLaunch::kStep),
        logits_(static_cast<std::size_t>(model.n_vocab())) {}

  // A text of so many random tokens, from an empty cache on.
  void compare_text(std::int32_t n_steps, std::mt19937& random, Compared& compared) {
    llama_memory_clear(llama_get_memory(model_.context()), true);
    std::uniform_int_distribution<std::int32_t> any(0, model_.n_vocab() - 1);
    for (std::int32_t position = 0; position < n_steps; ++position) {
      const std::int32_t token = any(random);
      const float* expected = decode(token, position);
      const bool is_last = compared.n_steps + 1 == n_in_all_;
      make(token, position, is_last, compared);
      const std::size_t n_bytes = logits_.size() * sizeof(float);
      const bool same = std::memcmp(logits_.data(), expected, n_bytes) == 0;
      if (!same && compared.n_wrong++ == 0) compared.first_wrong = position;
      ++compared.n_steps;
    }
  }

 private:
  // llama_decode's row of logits.
  [[nodiscard]] const float* decode(std::int32_t token, std::int32_t position) const {
    llama_token one = token;
    llama_pos at = position;
    std::int32_t n_sequences = 1;
    llama_seq_id sequence = 0;
    llama_seq_id* sequences = &sequence;
    std::int8_t has_logits = 1;
    const llama_batch batch{1, &one, nullptr, &at, &n_sequences, &sequences, &has_logits};
    if (llama_decode(model_.context(), batch) != 0)
      throw std::runtime_error("llama_decode failed at position " + std::to_string(position));
    return llama_get_logits_ith(model_.context(), -1);
  }

  // The same step by the window's graph.
  void make(std::int32_t token, std::int32_t position, bool is_seen, Compared& compared) {
    const Window window{.stream = 0, .n_kv = bridge_.window_cells(position + 1)};
    compared.n_kv_most = std::max(compared.n_kv_most, window.n_kv);
    const cudaGraphExec_t graph = graphs_.get(window);
    put_inputs(bridge_, window, position, token);
    const cudaStream_t stream = bridge_.stream();
    if (is_seen) cudaProfilerStart();
    cuda_check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
    if (is_seen) cudaProfilerStop();
    cuda_check(cudaMemcpyAsync(logits_.data(), graphs_.logits(window),
                               logits_.size() * sizeof(float), cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(stream), "a step");
  }

  const Model& model_;
  const std::int32_t n_in_all_;
  LlamaBridge& bridge_;
  WindowGraphs graphs_;
  std::vector<float> logits_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    const std::int32_t n_steps = argc > 2 ? std::stoi(argv[2]) : 1000;
    const std::int32_t n_a_text = argc > 3 ? std::stoi(argv[3]) : 500;
    EngineConfig config;
    config.model_path = argv[1];
    config.n_ctx = std::max(1024, n_a_text + 256);
    config.flash_attn = 1;
    config.warmup = false;
    if (argc > 4 && std::string(argv[4]) == "q8_0")
      config.cache_type_k = config.cache_type_v = kCacheTypeQ8;
    static_cast<void>(configure_device(config));
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    init_backends();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    Model model(config, progress, stop);
    LlamaBridge bridge(model.context());
    OwnStep own(bridge, StepKernels::kOwn);
    own.prepare(bridge, kPatience);
    ManySteps steps(model, bridge, own, n_steps);
    std::mt19937 random(1);
    Compared compared;
    const auto begin = std::chrono::steady_clock::now();
    while (compared.n_steps < n_steps)
      steps.compare_text(std::min(n_a_text, n_steps - compared.n_steps), random, compared);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    for (const StepPhaseReport& phase : own.report()) {
      std::printf("  %3d x %s: %s%s\n", phase.n, phase.phase.c_str(), phase.ours ? "own" : "ggml, ",
                  phase.why.c_str());
    }
    const bool holds = compared.n_wrong == 0 && own.has_own();
    std::printf("%s: %d steps of %d logits, windows of up to %d cells, %.1f s: %d differ",
                holds ? "ok" : "FAILED", compared.n_steps, model.n_vocab(), compared.n_kv_most,
                took.count(), compared.n_wrong);
    if (compared.n_wrong > 0) std::printf(", the first at position %d", compared.first_wrong);
    std::printf("\n");
    return holds ? 0 : 1;
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}
