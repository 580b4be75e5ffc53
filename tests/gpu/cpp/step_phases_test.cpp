// Phases of ours beside ggml's nodes for them, bit by bit: each shape by itself on random
// activations, then whole steps. It prints what is ours, and how long each shape takes.
//
//   step_phases_test MODEL.gguf [CACHE TYPE [WINDOW]]
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "device/kernels/card.h"
#include "device/phases/own_kernels.h"
#include "device/phases/own_step.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/phase_trial.h"
#include "device/phases/phase_tuner.h"
#include "device/phases/timed_graph.h"
#include "device/phases/value_places.h"
#include "engine/stepper_factory.h"
#include "model/model.h"

using namespace unpaced;

namespace {

constexpr int kSeeds = 4;
constexpr int kSteps = 8;

int n_failed = 0;

void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
  if (!holds) ++n_failed;
}

// Each shape, whether a start-up would take it or not.
void test_phases(LlamaBridge& bridge) {
  const Card card = find_card(bridge.device());
  const OwnKernels kernels(card);
  const StepGraph graph = bridge.graph();
  const std::vector<StepPhase> phases = plan_phases(graph, kernels);
  ValuePlaces places(graph, phases);
  const DeviceArray<std::byte> scratch(places.n_bytes() + 1);
  places.begin_at(scratch.data());
  MatVecChoices choices;
  const PhaseLauncher launcher(places, choices, card);
  PhaseTrial trial(bridge, graph, places, launcher);
  std::printf("compute %d, %zu KiB of scratch memory\n", card.compute, places.n_bytes() >> 10U);
  std::map<std::string, std::vector<const StepPhase*>> by_shape;
  for (const StepPhase& phase : phases) {
    if (phase.kind == PhaseKind::kGgml) {
      std::printf("  ggml %d-%d: %s\n", phase.nodes.begin, phase.nodes.end, phase.why.c_str());
    } else {
      by_shape[shape_of(graph, phase)].push_back(&phase);
    }
  }
  for (const auto& [shape, alike] : by_shape) {
    const std::string name = name_of(alike.front()->kind) + " at node " +
                             std::to_string(alike.front()->nodes.begin) + ", " +
                             std::to_string(alike.size()) + " of them";
    int n_even = 0;
    int n_wide = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const auto at = static_cast<std::size_t>(seed) % alike.size();
      n_even += trial.is_exact(*alike[at], TrialValues::kEven, static_cast<std::uint64_t>(seed));
      n_wide += trial.is_exact(*alike[at], TrialValues::kWide, static_cast<std::uint64_t>(seed));
    }
    expect(n_even == kSeeds && n_wide == kSeeds, name + ": " + std::to_string(n_even) + " and " +
                                                     std::to_string(n_wide) + " of " +
                                                     std::to_string(kSeeds) + " the same bits");
    const TrialTimes before = trial.measure(alike);
    for (const VariantTime& time : PhaseTuner(trial, choices, card).tune(alike)) {
      std::printf("    kernel %zu, build %d: %.1f us%s\n", time.launch, time.variant,
                  time.seconds * 1e6, time.is_exact ? "" : ", other bits");
    }
    const TrialTimes times = trial.measure(alike);
    std::printf("    ggml %.1f us, own %.1f us, by the fastest builds %.1f us\n", times.ggml * 1e6,
                before.own * 1e6, times.own * 1e6);
  }
}

struct Made {
  std::vector<float> logits;
  double seconds = 0;
};

// A step at the position, whose K and V go to the cell of that number.
Made make_step(LlamaBridge& bridge, OwnStep& own, const Window& window, std::int32_t position,
               std::size_t n_vocab) {
  bridge.open(window);
  const StepInputs& inputs = bridge.inputs();
  const std::int32_t token = 300 + position;
  const std::int64_t cell = position;
  std::vector<std::uint16_t> mask(static_cast<std::size_t>(window.n_kv), 0xfc00);
  for (std::int32_t i = 0; i <= position; ++i) mask[static_cast<std::size_t>(i)] = 0;
  const auto put = [](auto* to, const auto* from, std::size_t n) {
    cuda_check(cudaMemcpy(to, from, n * sizeof *from, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  put(inputs.token, &token, 1);
  put(inputs.position, &position, 1);
  put(inputs.k_index, &cell, 1);
  put(inputs.v_index, &cell, 1);
  put(inputs.mask, mask.data(), mask.size());
  StepProgram program;
  own.add_to(program, bridge);
  TimedGraph graph(bridge.stream(), [&] {
    program.enqueue(bridge, {.stream = bridge.stream(),
                             .window = window,
                             .logits = bridge.logits(),
                             .condition = {},
                             .loops = false});
  });
  Made made;
  for (int i = 0; i < 3; ++i) made.seconds = graph.seconds();
  made.logits.resize(n_vocab);
  cuda_check(cudaMemcpy(made.logits.data(), bridge.logits(), n_vocab * sizeof(float),
                        cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  return made;
}

void test_steps(LlamaBridge& bridge, const Model& model, const Window& window) {
  const auto n_vocab = static_cast<std::size_t>(model.n_vocab());
  OwnStep theirs(bridge, StepKernels::kGgml);
  OwnStep own(bridge, StepKernels::kOwn);
  for (const StepPhaseReport& phase : own.report()) {
    std::printf("  %3d x %s: %s%s\n", phase.n, phase.phase.c_str(), phase.ours ? "own" : "ggml, ",
                phase.why.c_str());
  }
  expect(own.has_own(), "some phases are ours");
  bool same = true;
  double seconds[2] = {0, 0};
  for (std::int32_t i = 0; i < kSteps; ++i) {
    const Made expected = make_step(bridge, theirs, window, i, n_vocab);
    const Made made = make_step(bridge, own, window, i, n_vocab);
    same = same &&
           std::memcmp(expected.logits.data(), made.logits.data(), n_vocab * sizeof(float)) == 0;
    seconds[0] = expected.seconds;
    seconds[1] = made.seconds;
  }
  expect(same, "whole steps have the same logits");
  std::printf("a step: ggml %.1f us, own %.1f us\n", seconds[0] * 1e6, seconds[1] * 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    EngineConfig config;
    config.model_path = argv[1];
    config.n_ctx = argc > 3 ? std::max(1024, std::stoi(argv[3])) : 1024;
    config.flash_attn = 1;
    config.warmup = false;
    if (argc > 2 && std::string(argv[2]) == "q8_0") config.cache_type_k = config.cache_type_v = 8;
    configure_device(config);
    llama_backend_init();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    Model model(config, progress, stop);
    LlamaBridge bridge(model.context());
    const Window window{.stream = 0,
                        .n_kv = argc > 3 ? std::stoi(argv[3]) : bridge.window_cells(1)};
    bridge.open(window);
    test_phases(bridge);
    llama_memory_clear(llama_get_memory(model.context()), true);
    test_steps(bridge, model, window);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
