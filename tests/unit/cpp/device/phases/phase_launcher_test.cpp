// What phases ask their kernels for: a real model's decode step with kernels on the CPU in place of
// the GPU's (reference_kernels.cpp), through the same plan, places and arguments. Its logits are
// the step's but for what other sums round.
//
//   phase_launcher_test [MODEL.gguf]
#include "device/phases/phase_launcher.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "device/phases/own_kernels.h"
#include "phase_player.h"
#include "recorded_step.h"

namespace {

using namespace unpaced;
using unpaced::test::PhasePlayer;
using unpaced::test::RecordedStep;

// Of the largest value that a phase leaves: other sums are rounded elsewhere, and a value between
// two steps of q8 may go to the other one.
constexpr float kTolerance = 1e-3F;

std::string model_path = UNPACED_DEFAULT_TEST_MODEL;

// What the phase leaves to later ones, floats and rows of the cache.
std::vector<std::vector<float>> left_by(const StepGraph& graph, const StepPhase& phase) {
  std::vector<std::vector<float>> all;
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    const ggml_tensor* node = graph.node(i);
    if (is_view(node) || !graph.is_read_outside(node, phase.nodes)) continue;
    std::vector<float>& values = all.emplace_back();
    if (node->op == GGML_OP_SET_ROWS) {
      const auto row = *static_cast<const std::int64_t*>(node->src[1]->data);
      const auto* cells = static_cast<const ggml_fp16_t*>(node->data) + row * node->ne[0];
      for (std::int64_t k = 0; k < node->ne[0]; ++k) values.push_back(ggml_fp16_to_fp32(cells[k]));
    } else {
      const auto* floats = static_cast<const float*>(node->data);
      values.assign(floats, floats + ggml_nelements(node));
    }
  }
  return all;
}

// Of the largest one.
float difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i]));
    difference = std::max(difference, std::isfinite(b[i]) ? std::abs(a[i] - b[i]) : INFINITY);
  }
  return difference / largest;
}

bool keeps_floats(const StepPhase& phase) {
  const auto* norm = std::get_if<NormLaunch>(&phase.launches.front());
  return norm == nullptr || norm->writes_out;
}

TEST(kernels_are_asked_for_what_the_step_computes) {
  const RecordedStep step(model_path, GGML_TYPE_F16);
  const StepGraph graph(step.nodes());
  const Card card{.compute = 90, .n_multiprocessors = 132, .shared_bytes_max = 232448};
  const OwnKernels kernels(card);
  const std::vector<StepPhase> phases = plan_phases(graph, kernels);
  ValuePlaces places(graph, phases);
  std::vector<std::byte> scratch(places.n_bytes(), std::byte{0xff});
  places.begin_at(scratch.data());
  const MatVecChoices choices;
  const PhaseLauncher launcher(places, choices, card);
  PhasePlayer player(graph, phases);
  step.restore();
  std::size_t n_own = 0;
  float largest = 0;
  for (const StepPhase& phase : phases) {
    if (phase.kind == PhaseKind::kGgml) {
      player.compute_nodes(phase.nodes);
      continue;
    }
    ++n_own;
    const RecordedStep::Saved before = step.save();
    player.compute_nodes(phase.nodes);
    const std::vector<std::vector<float>> expected = left_by(graph, phase);
    const RecordedStep::Saved after = step.save();
    RecordedStep::restore(before);
    launcher.enqueue(phase, nullptr);
    const std::vector<std::vector<float>> made = left_by(graph, phase);
    for (std::size_t i = 0; i < expected.size() && keeps_floats(phase); ++i) {
      largest = std::max(largest, difference(expected[i], made[i]));
      CHECK(difference(expected[i], made[i]) < kTolerance);
    }
    RecordedStep::restore(after);
  }
  std::printf("%zu phases of %zu are ours; their values differ by %g of the largest\n", n_own,
              phases.size(), static_cast<double>(largest));
  CHECK(n_own > phases.size() / 2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) model_path = argv[1];
  return unpaced::test::run_all(1, argv);
}
