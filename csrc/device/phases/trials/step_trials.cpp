#include "device/phases/trials/step_trials.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <utility>
#include <variant>

#include "decode/engine_lost.h"

namespace unpaced {
namespace {

constexpr const char* kDiffers = "its bits are not ggml's here: ";
constexpr const char* kSlower = "it is slower than ggml's here";
constexpr std::int32_t kGgmls = -1;  // in place of builds
// Of a step so many phases are tried together: some eight layers and the head.
constexpr std::size_t kFirstPhases = 48;
constexpr std::size_t kLastPhases = 2;
// Before the name of a shape whose rows have the bits that each has alone.
constexpr const char* kAlone = "rows as alone: ";

std::size_t weight_bytes(const StepPhase& phase) {
  std::size_t n = 0;
  for (const PhaseLaunch& launch : phase.launches) {
    if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      for (const ProductPart& part : products->parts) n += ggml_nbytes(part.weights);
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launch)) {
      n += ggml_nbytes(gated->part.gate.weights) + ggml_nbytes(gated->part.up.weights);
    }
  }
  return n;
}

// The first phases of a step from the first one of ours on, and its last ones; what is refused is
// ggml's.
std::vector<StepPhase> step_of(const StepGraph& graph, std::span<const StepPhase> phases,
                               const OwnKernels& kernels) {
  std::vector<StepPhase> step;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (step.size() >= kFirstPhases && i + kLastPhases < phases.size()) continue;
    StepPhase phase = phases[i];
    if (!kernels.why_no_phase(graph, phase).empty()) phase.kind = PhaseKind::kGgml;
    if (phase.kind == PhaseKind::kGgml) {
      if (step.empty()) continue;
      step.back().next_is_ours = false;
    }
    step.push_back(std::move(phase));
  }
  return step;
}

}  // namespace

struct StepTrials::Shape {
  std::string name;
  std::vector<const StepPhase*> phases;
  std::size_t n_bytes = 0;  // of weights, in all of the phases
};

std::vector<StepTrials::Shape> StepTrials::shapes_of(const StepGraph& graph,
                                                     std::span<const StepPhase> phases) {
  std::map<std::string, Shape> by_name;
  for (const StepPhase& phase : phases) {
    if (phase.kind == PhaseKind::kGgml) continue;
    Shape& shape = by_name[shape_of(graph, phase)];
    shape.phases.push_back(&phase);
    shape.n_bytes += weight_bytes(phase);
  }
  std::vector<Shape> shapes;
  for (auto& [name, shape] : by_name) {
    shape.name = name;
    shapes.push_back(std::move(shape));
  }
  std::ranges::stable_sort(shapes, std::greater<>(), &Shape::n_bytes);
  return shapes;
}

std::vector<PhaseTrialReport> StepTrials::run(const StepGraph& graph,
                                              std::span<const StepPhase> phases,
                                              OwnKernels& kernels) {
  std::vector<PhaseTrialReport> reports;
  for (const Shape& shape : shapes_of(graph, phases)) {
    const Clock::time_point begin = Clock::now();
    PhaseTrialReport& told = reports.emplace_back();
    told.phase = name_of(shape.phases.front()->kind);
    told.n = static_cast<std::int32_t>(shape.phases.size());
    try {
      const std::string why = why_ggml(shape, told);
      if (!why.empty()) kernels.refuse(shape.name, why);
    } catch (const EngineLost&) {
      throw;
    } catch (const std::exception& e) {
      kernels.refuse(shape.name, e.what());
    }
    told.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
  return reports;
}

void StepTrials::settle(const StepGraph& graph, std::span<const StepPhase> phases,
                        OwnKernels& kernels, Clock::time_point until) {
  if (measured_.empty()) return;
  const std::vector<StepPhase> step = step_of(graph, phases, kernels);
  try {
    tuner_->settle([&] { return trial_.measure_step(step); }, until);
  } catch (const EngineLost&) {
    throw;
  } catch (
      const std::exception&) {  // NOLINT(bugprone-empty-catch): the builds are as good as measured
  }
  for (const auto& [shape, phase] : measured_) {
    if (kept_.find(shape) == tuner_->chosen(*phase)) continue;
    kept_.put(shape, tuner_->chosen(*phase));
    if (const std::string what = trial_.difference(*phase); !what.empty())
      kernels.refuse(shape, kDiffers + what);
  }
}

std::vector<PhaseTrialReport> StepTrials::tune(const StepGraph& graph,
                                               std::span<const StepPhase> phases) {
  std::vector<PhaseTrialReport> reports;
  for (const Shape& shape : shapes_of(graph, phases)) {
    const Clock::time_point begin = Clock::now();
    const StepPhase& first = *shape.phases.front();
    const std::string name = kAlone + shape.name;
    PhaseTrialReport& told = reports.emplace_back();
    told.phase = name_of(first.kind);
    told.n = static_cast<std::int32_t>(shape.phases.size());
    const std::optional<std::int32_t> known = kept_.find(name);
    told.remembered = known.has_value();
    if (known) {
      tuner_->choose(first, *known);
    } else if (begin <= until_ && shape.n_bytes > 0) {
      static_cast<void>(tuner_->tune(shape.phases));
      told.measured = true;
      told.own_us = trial_.measure_own(shape.phases) * 1e6;
      kept_.put(name, tuner_->chosen(first));
    }
    told.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
  return reports;
}

std::string StepTrials::why_ggml(const Shape& shape, PhaseTrialReport& told) {
  const StepPhase& first = *shape.phases.front();
  const std::optional<std::int32_t> known =
      tuner_ == nullptr ? std::nullopt : kept_.find(shape.name);
  told.remembered = known.has_value();
  if (known == kGgmls) return kSlower;
  if (known) tuner_->choose(first, *known);
  if (const std::string what = trial_.difference(first); !what.empty()) return kDiffers + what;
  if (known || tuner_ == nullptr || Clock::now() > until_) return "";
  return why_ggml_by_time(shape, told);
}

std::string StepTrials::why_ggml_by_time(const Shape& shape, PhaseTrialReport& told) {
  const StepPhase& first = *shape.phases.front();
  static_cast<void>(tuner_->tune(shape.phases));
  // Another build than before.
  if (const std::string what = trial_.difference(first); !what.empty()) return kDiffers + what;
  const TrialTimes times = trial_.measure(shape.phases);
  told.measured = true;
  told.ggml_us = times.ggml * 1e6;
  told.own_us = times.own * 1e6;
  const bool is_slower = times.own > times.ggml;
  kept_.put(shape.name, is_slower ? kGgmls : tuner_->chosen(first));
  if (!is_slower) measured_.emplace_back(shape.name, &first);
  return is_slower ? kSlower : "";
}

}  // namespace unpaced
