// A real model's decode step in phases, on the CPU: every node is in one phase, no border cuts what
// ggml-cuda computes by one kernel, and the phases leave the step's logits, bit by bit, whichever
// of them are ours.
//
//   step_phases_test [MODEL.gguf [CACHE TYPE [TOKENS]]]      it prints the phases
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "device/graph/fusion_borders.h"
#include "device/graph/step_phase.h"
#include "phase_player.h"
#include "recorded_step.h"

namespace {

using namespace unpaced;
using unpaced::test::PhasePlayer;
using unpaced::test::RecordedStep;

std::string model_path = UNPACED_DEFAULT_TEST_MODEL;
ggml_type cache_type = GGML_TYPE_F16;
std::int32_t n_tokens = 1;
std::int32_t n_outputs = 1;

// There are kernels for everything but what is refused.
class SomeKernels : public PhaseKernels {
 public:
  std::function<bool(const NormPart&)> has_norm = [](const auto&) { return true; };
  std::function<bool(std::span<const ProductPart>)> has_products = [](auto) { return true; };
  std::function<bool(const GatedPart&)> has_gated = [](const auto&) { return true; };
  std::function<bool(const RopeLaunch&)> has_rope = [](const auto&) { return true; };
  std::function<bool(const AttentionPart&)> has_attention = [](const auto&) { return true; };
  std::function<bool(const StepPhase&)> has_phase = [](const auto&) { return true; };

  std::string why_no_norm(const NormPart& part) const override { return why(has_norm(part)); }
  std::string why_no_products(std::span<const ProductPart> parts) const override {
    return why(has_products(parts));
  }
  std::string why_no_gated(const GatedPart& part) const override { return why(has_gated(part)); }
  std::string why_no_choice(const ExpertChoicePart&) const override { return ""; }
  std::string why_no_activation(const ActivationPart&) const override { return ""; }
  std::string why_no_rope(const RopeLaunch& launch) const override { return why(has_rope(launch)); }
  std::string why_no_attention(const AttentionPart& part) const override {
    return why(has_attention(part));
  }
  std::int32_t attention_parts(const AttentionPart&) const override { return 2; }
  std::string why_no_phase(const StepGraph&, const StepPhase& phase) const override {
    return why(has_phase(phase));
  }

 private:
  static std::string why(bool has) { return has ? "" : "refused"; }
};

const RecordedStep& step() {
  static const RecordedStep recorded(model_path, cache_type, n_tokens, n_outputs);
  return recorded;
}

const StepGraph& graph() {
  static const StepGraph made(step().nodes());
  return made;
}

std::vector<float> play(const std::vector<StepPhase>& phases) {
  step().restore();
  PhasePlayer(graph(), phases).play();
  const ggml_tensor* logits = step().nodes().back();
  const auto* row = static_cast<const float*>(logits->data);
  return {row, row + ggml_nelements(logits)};
}

const std::vector<float>& expected() {
  static const std::vector<float> row = play({{{0, graph().size()}, PhaseKind::kGgml, {}, ""}});
  return row;
}

std::vector<StepPhase> check(const PhaseKernels& kernels) {
  std::vector<StepPhase> phases = plan_phases(graph(), kernels);
  const std::vector<bool> borders = fusion_borders(graph());
  std::int32_t end = 0;
  for (const StepPhase& phase : phases) {
    CHECK_EQ(phase.nodes.begin, end);
    CHECK(phase.nodes.end > end);
    end = phase.nodes.end;
    if (phase.kind == PhaseKind::kGgml) {
      CHECK(!phase.why.empty());
      CHECK(borders[static_cast<std::size_t>(phase.nodes.begin)]);
      CHECK(borders[static_cast<std::size_t>(phase.nodes.end)]);
    } else {
      CHECK_EQ(memory_conflict(graph(), phase), "");
    }
  }
  CHECK_EQ(end, graph().size());
  CHECK(play(phases) == expected());
  return phases;
}

std::string launches_of(const StepPhase& phase) {
  static const char* const kNames[] = {"norm",       "round", "products",  "gated",
                                       "activation", "heads", "attention", "choice"};
  std::string all;
  for (const PhaseLaunch& launch : phase.launches) {
    all += all.empty() ? "" : " ";
    if (const auto* norm = std::get_if<NormLaunch>(&launch)) {
      all += norm->sum ? "sum+" : "";
      all += norm->before ? "norm+" : "";
    }
    all += kNames[launch.index()];
    if (const auto* attention = std::get_if<AttentionLaunch>(&launch)) {
      all += attention->rounded == nullptr ? "" : " rounded";
      all += attention->writes_out ? " and floats" : "";
    }
    if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      all += "*" + std::to_string(products->parts.size());
      all += products->parts.front().added == nullptr ? "" : "+";
    }
  }
  return all;
}

void print(const std::vector<StepPhase>& phases) {
  for (const StepPhase& phase : phases) {
    std::printf("%d-%d %s: %s%s\n", phase.nodes.begin, phase.nodes.end, name_of(phase.kind).c_str(),
                launches_of(phase).c_str(), phase.why.c_str());
  }
}

TEST(the_step_can_be_made_again) {
  CHECK_EQ(expected().size(), step().logits().size());
  float largest = 0;
  for (std::size_t i = 0; i < expected().size(); ++i) {
    largest = std::max(largest, std::abs(expected()[i] - step().logits()[i]));
  }
  CHECK(largest < 1e-3F);
  CHECK(play({{{0, graph().size()}, PhaseKind::kGgml, {}, ""}}) == expected());
}

TEST(all_phases_are_ours) {
  const std::vector<StepPhase> phases = check(SomeKernels());
  print(phases);
  // Experts of several tokens are ggml's.
  const PhaseKind kind = n_tokens > 1 ? PhaseKind::kAttentionInput : PhaseKind::kFeedForward;
  CHECK(std::ranges::any_of(phases, [&](const StepPhase& phase) { return phase.kind == kind; }));
}

TEST(no_phase_is_ours) {
  SomeKernels none;
  none.has_phase = [](const StepPhase&) { return false; };
  const std::vector<StepPhase> phases = check(none);
  CHECK_EQ(phases.size(), 1U);
}

TEST(a_kernel_that_is_wanting_leaves_the_others) {
  SomeKernels kernels;
  kernels.has_norm = [](const NormPart&) { return false; };
  check(kernels);
  kernels = {};
  kernels.has_rope = [](const RopeLaunch&) { return false; };
  check(kernels);
  kernels = {};
  kernels.has_gated = [](const GatedPart&) { return false; };
  check(kernels);
  kernels = {};
  kernels.has_products = [](std::span<const ProductPart> parts) { return parts.size() == 1; };
  check(kernels);
  kernels.has_products = [](std::span<const ProductPart>) { return false; };
  check(kernels);
}

TEST(any_half_of_the_phases_can_be_ours) {
  std::uint32_t seed = 1;
  for (int i = 0; i < 12; ++i) {
    SomeKernels kernels;
    std::uint32_t mask = seed = seed * 1664525U + 1013904223U;
    // By where it begins, so that it is asked of every time alike.
    kernels.has_phase = [mask](const StepPhase& phase) {
      return (mask * static_cast<std::uint32_t>(phase.nodes.begin + 1) & 0x40000U) != 0;
    };
    check(kernels);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) model_path = argv[1];
  if (argc > 2) cache_type = std::string(argv[2]) == "q8_0" ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
  if (argc > 3) n_tokens = std::stoi(argv[3]);
  if (argc > 4) n_outputs = std::stoi(argv[4]);
  return unpaced::test::run_all(1, argv);
}
