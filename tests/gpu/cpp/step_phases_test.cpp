// Phases of ours beside ggml's nodes for them, bit by bit: each shape by itself on random
// activations, attention in windows of several sizes, then whole steps. It prints what is ours, and
// where a step that has other bits begins to have them; of a window, how long each shape takes in
// it.
//
//   step_phases_test MODEL.gguf [CACHE TYPE [WINDOW [TOKENS]]]
//
// With more than one token: each shape of a prompt of so many.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "device/graph/fusion_borders.h"
#include "device/kernels/card.h"
#include "device/loop/own_step.h"
#include "device/phases/own_kernels.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/trials/phase_trial.h"
#include "device/phases/trials/phase_tuner.h"
#include "device/phases/trials/timed_graph.h"
#include "device/phases/value_places.h"
#include "engine/stepper_factory.h"
#include "model/model.h"
#include "phase_plan.h"
#include "step_run.h"

using namespace unpaced;

namespace {

constexpr int kSeeds = 4;
constexpr int kSteps = 8;

int n_failed = 0;

void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
  if (!holds) ++n_failed;
}

using Alike = std::vector<const StepPhase*>;

std::string name_of(const Alike& alike) {
  const StepPhase& first = *alike.front();
  return name_of(first.kind) + " at nodes " + std::to_string(first.nodes.begin) + "-" +
         std::to_string(first.nodes.end) + ", " + std::to_string(alike.size()) + " of them";
}

// What is wrong with a shape's bits is told once for each kind of values.
void test_bits(PhaseTrial& trial, const Alike& alike, const std::string& shape) {
  int n_same[2] = {0, 0};
  std::string told;
  for (const TrialValues values : {TrialValues::kEven, TrialValues::kWide}) {
    int& n = n_same[static_cast<int>(values)];
    std::string first;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const auto at = static_cast<std::size_t>(seed) % alike.size();
      const std::string what =
          trial.difference(*alike[at], values, static_cast<std::uint64_t>(seed));
      n += what.empty() ? 1 : 0;
      if (first.empty()) first = what;
    }
    if (!first.empty())
      told +=
          std::string("\n    ") + (values == TrialValues::kEven ? "even" : "wide") + ": " + first;
  }
  const bool exact = n_same[0] == kSeeds && n_same[1] == kSeeds;
  expect(exact, name_of(alike) + ": " + std::to_string(n_same[0]) + " and " +
                    std::to_string(n_same[1]) + " of " + std::to_string(kSeeds) + " the same bits" +
                    told);
  if (!exact) std::printf("    %s\n", shape.c_str());
}

// Of a phase of the shape: ggml's time, ours, and ours by the fastest builds.
void measure(PhaseTrial& trial, Planned& planned, const Alike& alike, double (&totals)[3]) {
  const TrialTimes before = trial.measure(alike);
  for (const VariantTime& time : PhaseTuner(trial, planned.choices, planned.card).tune(alike)) {
    std::printf("    kernel %zu, build %d: %.1f us\n", time.launch, time.variant,
                time.seconds * 1e6);
  }
  const TrialTimes times = trial.measure(alike);
  std::printf("    a phase: ggml %.1f us, own %.1f us, by the fastest builds %.1f us\n",
              times.ggml * 1e6, before.own * 1e6, times.own * 1e6);
  const auto n = static_cast<double>(alike.size());
  totals[0] += n * times.ggml;
  totals[1] += n * before.own;
  totals[2] += n * times.own;
}

bool has_experts(const StepGraph& graph) {
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    if (graph.node(i)->op == GGML_OP_MUL_MAT_ID) return true;
  }
  return false;
}

// What stays ggml's, on whatever is in memory: with experts that may name none of them.
double measure_ggml(LlamaBridge& bridge, const Alike& alike) {
  TimedGraph graph(bridge.stream(), [&] {
    for (const StepPhase* phase : alike) bridge.run(phase->nodes);
  });
  double best = 1;
  for (int i = 0; i < 3; ++i) best = std::min(best, graph.seconds(kPatience));
  return best / static_cast<double>(alike.size());
}

// Each shape, whether a start-up would take it or not.
void test_phases(LlamaBridge& bridge, bool measures) {
  Planned planned(bridge);
  PhaseTrial trial(bridge, planned.graph, planned.places, planned.launcher, kPatience);
  const DeviceArray<std::byte> cleared(kTrialBytes);
  trial.clear_cache_by({cleared.data(), cleared.size()});
  std::printf("compute %d, %d multiprocessors, %zu KiB of scratch memory\n", planned.card.compute,
              planned.card.n_multiprocessors, planned.places.n_bytes() >> 10U);
  std::map<std::string, Alike> by_shape;
  for (const StepPhase& phase : planned.phases)
    by_shape[shape_of(planned.graph, phase)].push_back(&phase);
  double ggml = 0;
  double totals[3] = {0, 0, 0};
  for (const auto& [shape, alike] : by_shape) {
    if (alike.front()->kind == PhaseKind::kGgml) {
      const bool is_safe = measures && !has_experts(planned.graph);
      const double seconds = is_safe ? measure_ggml(bridge, alike) : 0;
      std::printf("  %s: %s; %.1f us\n", name_of(alike).c_str(), alike.front()->why.c_str(),
                  seconds * 1e6);
      ggml += static_cast<double>(alike.size()) * seconds;
      continue;
    }
    test_bits(trial, alike, shape);
    if (measures) measure(trial, planned, alike, totals);
    std::fflush(stdout);
  }
  if (!measures) return;
  std::printf(
      "phases one by one: ggml's own %.0f us; the others by ggml %.0f us, by us %.0f us, by the "
      "fastest builds %.0f us\n",
      ggml * 1e6, totals[0] * 1e6, totals[1] * 1e6, totals[2] * 1e6);
}

// Attention's sums hang on the window: how many parts it has, and how many cells each of them.
void test_windows(LlamaBridge& bridge, bool measures) {
  for (std::int32_t n_kv = bridge.window_cells(1); n_kv <= bridge.n_cells();
       n_kv = n_kv < 1024 ? bridge.window_cells(n_kv + 1) : 2 * n_kv) {
    bridge.open({.stream = 0, .n_kv = n_kv});
    Planned planned(bridge);
    PhaseTrial trial(bridge, planned.graph, planned.places, planned.launcher, kPatience);
    const DeviceArray<std::byte> cleared(kTrialBytes);
    trial.clear_cache_by({cleared.data(), cleared.size()});
    std::map<std::string, Alike> by_shape;
    for (const StepPhase& phase : planned.phases) {
      if (phase.kind != PhaseKind::kAttention) continue;
      by_shape[shape_of(planned.graph, phase)].push_back(&phase);
    }
    for (const auto& [shape, alike] : by_shape) {
      const auto& launch = std::get<AttentionLaunch>(alike.front()->launches.front());
      std::printf("  a window of %d cells in %d parts\n", n_kv, launch.n_parts);
      test_bits(trial, alike, shape);
      if (!measures) continue;
      const TrialTimes times = trial.measure(alike);
      std::printf("    attention, %d cells: ggml %.1f us, own %.1f us\n", n_kv, times.ggml * 1e6,
                  times.own * 1e6);
    }
  }
}

// With more and more of a step's phases by us: where its bits begin to be others.
void show_first_wrong(LlamaBridge& bridge, const Window& window, std::size_t n_vocab) {
  bridge.open(window);
  put_inputs(bridge, window, kSteps);
  const Planned planned(bridge);
  const std::vector<bool> borders = fusion_borders(planned.graph);
  const Made expected = run(bridge, program_of(planned, 0), window, n_vocab);
  std::size_t before = 0;
  for (std::size_t n = 1; n <= planned.phases.size(); ++n) {
    if (!may_change_at(planned, n, borders)) continue;
    const Made made = run(bridge, program_of(planned, n), window, n_vocab);
    if (const std::size_t n_wrong = n_different(made, expected); n_wrong > 0) {
      const Made again = run(bridge, program_of(planned, n), window, n_vocab);
      std::printf(
          "  by us up to phase %zu: %zu logits differ, %zu from the same once more; since "
          "phase %zu there are:\n",
          n, n_wrong, n_different(made, again), before);
      for (std::size_t i = before; i < n; ++i) {
        const StepPhase& phase = planned.phases[i];
        std::printf("    %s\n", shape_of(planned.graph, phase).c_str());
      }
      return;
    }
    before = n;
  }
  std::printf("  phase after phase no logit differs: it is not the same every time\n");
}

// What a start with --kernels auto takes and chooses.
struct AutoStart {
  double ms = 0;
  int n_left = 0;  // shapes that were not chosen by what was kept
};

AutoStart start_auto(LlamaBridge& bridge, const std::string& folder, bool remembers) {
  OwnStep step(bridge, StepKernels::kAuto, folder);
  step.prepare(bridge, kPatience);
  AutoStart made;
  for (const PhaseTrialReport& trial : step.trials()) {
    made.ms += trial.ms;
    made.n_left += trial.remembered && !trial.measured ? 0 : 1;
    std::printf("  auto: %3d x %s: %.1f ms", trial.n, trial.phase.c_str(), trial.ms);
    if (remembers) expect(trial.remembered && !trial.measured, "remembered: " + trial.phase);
    if (trial.measured) std::printf(", ggml %.1f us, own %.1f us", trial.ggml_us, trial.own_us);
    std::printf("\n");
  }
  return made;
}

// As often as it takes to measure everything, of which a busy card does less a start; the last one
// goes by what was kept.
void test_auto(LlamaBridge& bridge, bool is_alone) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("choices-" + std::to_string(getpid()));
  const AutoStart first = start_auto(bridge, folder, false);
  expect(!is_alone || first.ms <= 200, "auto took " + std::to_string(first.ms) + " ms");
  for (int i = 0; i < 20 && start_auto(bridge, folder, false).n_left > 0; ++i) {
  }
  const AutoStart last = start_auto(bridge, folder, true);
  expect(!is_alone || last.ms < first.ms, "by what was kept " + std::to_string(last.ms) + " ms");
  std::filesystem::remove_all(folder);
}

// The phases of a prompt's graph; whole prompts are prompt_graphs_test's.
void test_prompt(const Model& model, std::int32_t n_kv, std::int32_t n_tokens) {
  LlamaBridge bridge(model.context(), {.n_tokens = n_tokens});
  bridge.open({.stream = 0, .n_kv = n_kv, .n_tokens = n_tokens});
  test_phases(bridge, true);
}

void test_steps(LlamaBridge& bridge, const Model& model, const Window& window) {
  const auto n_vocab = static_cast<std::size_t>(model.n_vocab());
  OwnStep theirs(bridge, StepKernels::kGgml);
  OwnStep own(bridge, StepKernels::kOwn);
  theirs.prepare(bridge, kPatience);
  own.prepare(bridge, kPatience);
  for (const StepPhaseReport& phase : own.report()) {
    std::printf("  %3d x %s: %s%s\n", phase.n, phase.phase.c_str(), phase.ours ? "own" : "ggml, ",
                phase.why.c_str());
  }
  expect(own.has_own(), "some phases are ours");
  int n_wrong = 0;
  double seconds[2] = {0, 0};
  for (std::int32_t i = 0; i < kSteps; ++i) {
    // The first half in a larger window, if there is one: what is ours there may be other phases.
    const bool larger = i < kSteps / 2;
    const Window here{.stream = 0,
                      .n_kv = larger ? bridge.window_cells(window.n_kv + 1) : window.n_kv};
    const Made expected = make_step(bridge, theirs, here, i, n_vocab);
    const Made made = make_step(bridge, own, here, i, n_vocab);
    if (const std::size_t n = n_different(made, expected); n > 0) {
      if (n_wrong++ == 0) std::printf("  step %d: %zu logits differ\n", i, n);
    }
    seconds[0] = expected.seconds;
    seconds[1] = made.seconds;
  }
  expect(n_wrong == 0, "whole steps have the same logits");
  std::printf("a step: ggml %.1f us, own %.1f us\n", seconds[0] * 1e6, seconds[1] * 1e6);
  if (n_wrong > 0) show_first_wrong(bridge, window, n_vocab);
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
    static_cast<void>(configure_device(config));
    init_backends();
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    Model model(config, progress, stop);
    if (argc > 4) {
      test_prompt(model, std::stoi(argv[3]), std::stoi(argv[4]));
      return n_failed == 0 ? 0 : 1;
    }
    LlamaBridge bridge(model.context());
    const Window window{.stream = 0,
                        .n_kv = argc > 3 ? std::stoi(argv[3]) : bridge.window_cells(1)};
    bridge.open(window);
    test_phases(bridge, argc > 3);
    test_windows(bridge, argc > 3);
    bridge.open(window);
    test_auto(bridge, argc > 3);
    llama_memory_clear(llama_get_memory(model.context()), true);
    test_steps(bridge, model, window);
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
  return n_failed == 0 ? 0 : 1;
}
