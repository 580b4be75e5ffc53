// What phases ask their kernels for: a real model's decode step with kernels on the CPU in place of
// the GPU's (reference_kernels.cpp), through the same plan, places and arguments. Its logits are
// the step's but for what other sums round.
//
//   phase_launcher_test [MODEL.gguf [TOKENS]]
#include "device/phases/phase_launcher.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "device/phases/kernel_arguments.h"
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
// Of many rows more values do.
constexpr std::int32_t kFewRows = 20;
constexpr float kManyRowsTolerance = 5e-3F;

// ggml's CPU adds up an attention's values in F16.
constexpr float kAttentionTolerance = 1e-2F;

std::string model_path = UNPACED_DEFAULT_TEST_MODEL;
std::int32_t n_tokens = 1;
std::int32_t n_outputs = 1;
bool as_alone = false;

// What the phase leaves to later ones: floats, rows of the cache, the experts that were chosen.
std::vector<std::vector<float>> left_by(const StepGraph& graph, const StepPhase& phase) {
  std::vector<std::vector<float>> all;
  for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
    const ggml_tensor* node = graph.node(i);
    if (is_view(node) || !graph.is_read_outside(node, phase.nodes)) continue;
    std::vector<float>& values = all.emplace_back();
    if (node->op == GGML_OP_SET_ROWS) {
      for (std::int64_t i = 0; i < ggml_nelements(node->src[1]); ++i) {
        const std::int64_t row = static_cast<const std::int64_t*>(node->src[1]->data)[i];
        const auto* cells = static_cast<const ggml_fp16_t*>(node->data) + row * node->ne[0];
        for (std::int64_t k = 0; k < node->ne[0]; ++k)
          values.push_back(ggml_fp16_to_fp32(cells[k]));
      }
    } else if (const auto* choice = std::get_if<ExpertChoiceLaunch>(&phase.launches.front());
               choice != nullptr && node == choice->part.experts) {
      const auto* experts = static_cast<const std::int32_t*>(node->data);
      values.assign(experts, experts + choice->part.n_chosen);
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

const AttentionLaunch* attention_of(const StepPhase& phase) {
  return std::get_if<AttentionLaunch>(&phase.launches.front());
}

// What an attention leaves is a rounded row, if nobody else reads it.
std::vector<float> rounded_row(const ValuePlaces& places, const ggml_tensor* row) {
  const Q8Block* blocks = places.rounded(row);
  std::vector<float> values;
  for (std::int64_t i = 0; i < row->ne[0]; ++i) {
    const Q8Block& block = blocks[i / kQ8Values];
    const float d = ggml_fp16_to_fp32(static_cast<ggml_fp16_t>(block.scale_and_sum & 0xffffU));
    values.push_back(d * static_cast<float>(block.values[i % kQ8Values]));
  }
  return values;
}

bool keeps_floats(const StepPhase& phase) {
  const auto* norm = std::get_if<NormLaunch>(&phase.launches.front());
  if (const AttentionLaunch* attention = attention_of(phase)) return attention->writes_out;
  return norm == nullptr || norm->writes_out;
}

TEST(kernels_are_asked_for_what_the_step_computes) {
  const RecordedStep step(model_path, GGML_TYPE_F16, n_tokens, n_outputs);
  StepGraph graph(step.nodes());
  if (as_alone) graph.have_rows_as_alone();
  const Card card{.compute = 90, .code = 90, .n_multiprocessors = 132, .shared_bytes_max = 232448};
  OwnKernels kernels(card);
  AttentionParts parts;
  for (std::int32_t i = 0; i < graph.size(); ++i) {
    if (graph.node(i)->op == GGML_OP_FLASH_ATTN_EXT) parts.put(graph.node(i), 2);
  }
  kernels.know(parts);
  const std::vector<StepPhase> phases = plan_phases(graph, kernels);
  ValuePlaces places(
      graph, phases, [&card](const ProductPart& part) { return takes_records(part, card); },
      product_bytes(phases, card));
  std::vector<std::byte> scratch(places.n_bytes(), std::byte{0xff});
  places.begin_at(scratch.data());
  const MatVecChoices choices;
  const PhaseLauncher launcher(places, choices, card);
  PhasePlayer player(graph, phases);
  step.restore();
  std::size_t n_own = 0;
  std::size_t n_attentions = 0;
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
    const AttentionLaunch* attention = attention_of(phase);
    for (std::size_t i = 0; i < expected.size() && keeps_floats(phase); ++i) {
      largest = std::max(largest, difference(expected[i], made[i]));
      CHECK(difference(expected[i], made[i]) < (attention != nullptr   ? kAttentionTolerance
                                                : n_tokens <= kFewRows ? kTolerance
                                                                       : kManyRowsTolerance));
    }
    RecordedStep::restore(after);
    if (attention != nullptr && attention->rounded != nullptr) {
      CHECK(difference(expected[0], rounded_row(places, attention->rounded)) < kAttentionTolerance);
      // The next phase takes the row that ggml's floats give.
      StepPhase alone;
      alone.launches.emplace_back(RoundLaunch{attention->rounded});
      launcher.enqueue(alone, nullptr);
      ++n_attentions;
    }
  }
  std::printf("%zu phases of %zu are ours; their values differ by %g of the largest\n", n_own,
              phases.size(), static_cast<double>(largest));
  CHECK(n_own > phases.size() / 2);
  CHECK((n_attentions > 0) == (n_tokens == 1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) model_path = argv[1];
  if (argc > 2) n_tokens = std::stoi(argv[2]);
  if (argc > 3) n_outputs = std::stoi(argv[3]);
  if (argc > 4) as_alone = std::string(argv[4]) == "alone";
  return unpaced::test::run_all(1, argv);
}
