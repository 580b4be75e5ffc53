#include "device/phases/own_step.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/phase_trial.h"
#include "device/phases/phase_tuner.h"
#include "device/phases/value_places.h"

namespace unpaced {

// What the kernels of a graph's phases are asked for. Its tensors are the graph's.
struct OwnStep::Plan {
  Plan(StepGraph g, std::vector<StepPhase> p, const MatVecChoices& choices, const Card& card)
      : graph(std::move(g)),
        phases(std::move(p)),
        places(graph, phases),
        launcher(places, choices, card) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const StepGraph graph;
  const std::vector<StepPhase> phases;
  ValuePlaces places;
  const PhaseLauncher launcher;
};

OwnStep::OwnStep(const LlamaBridge& bridge, StepKernels choice)
    : card_(find_card(bridge.device())), choice_(choice), kernels_(card_) {
  if (choice == StepKernels::kGgml) why_none_ = "the configuration asks for it";
}

void OwnStep::prepare(LlamaBridge& bridge, std::chrono::microseconds limit) {
  bridge.open({.stream = 0, .n_kv = bridge.window_cells(1)});
  if (why_none_.empty()) test(bridge, limit);
  trial_.reset();
  tell(*plan(bridge));
}

std::shared_ptr<const OwnStep::Plan> OwnStep::plan(const LlamaBridge& bridge) {
  StepGraph graph = bridge.graph();
  std::vector<StepPhase> phases{{{0, graph.size()}, PhaseKind::kGgml, {}, why_none_}};
  if (why_none_.empty()) phases = plan_phases(graph, kernels_);
  auto plan = std::make_shared<Plan>(std::move(graph), std::move(phases), choices_, card_);
  plan->places.begin_at(scratch_of(plan->places.n_bytes()));
  return plan;
}

std::byte* OwnStep::scratch_of(std::size_t n_bytes) {
  if (n_bytes == 0) return nullptr;
  // Another window may have more phases of ours. Graphs that were captured hold the addresses of
  // what they had.
  if (scratch_.empty() || scratch_.back().size() < n_bytes) scratch_.emplace_back(n_bytes);
  return scratch_.back().data();
}

void OwnStep::test(LlamaBridge& bridge, std::chrono::microseconds limit) {
  const std::shared_ptr<const Plan> all = plan(bridge);
  PhaseTrial trial(bridge, all->graph, all->places, all->launcher, limit);
  const bool measures = choice_ == StepKernels::kAuto;
  if (measures) {
    try {
      trial_ = std::make_unique<DeviceArray<std::byte>>(kTrialBytes);
      trial.clear_cache_by({trial_->data(), trial_->size()});
    } catch (const EngineLost&) {
      throw;
    } catch (const std::runtime_error&) {  // there is not so much
    }
  }
  PhaseTuner tuner(trial, choices_, card_);
  std::map<std::string, std::vector<const StepPhase*>> by_shape;
  for (const StepPhase& phase : all->phases) {
    if (phase.kind != PhaseKind::kGgml) by_shape[shape_of(all->graph, phase)].push_back(&phase);
  }
  for (const auto& [shape, phases] : by_shape) {
    try {
      if (measures) static_cast<void>(tuner.tune(phases));
      if (const std::string what = trial.difference(*phases.front()); !what.empty()) {
        kernels_.refuse(shape, "its bits are not ggml's here: " + what);
        continue;
      }
      if (!measures) continue;
      const TrialTimes times = trial.measure(phases);
      if (times.own > times.ggml) kernels_.refuse(shape, "it is slower than ggml's here");
    } catch (const EngineLost&) {
      throw;
    } catch (const std::exception& e) {
      kernels_.refuse(shape, e.what());
    }
  }
}

void OwnStep::tell(const Plan& plan) {
  report_.clear();
  has_own_ = false;
  for (const StepPhase& phase : plan.phases) {
    const bool ours = phase.kind != PhaseKind::kGgml;
    has_own_ = has_own_ || ours;
    StepPhaseReport told{name_of(phase.kind), ours, phase.why, 1};
    const auto like = std::ranges::find_if(report_, [&](const StepPhaseReport& other) {
      return other.phase == told.phase && other.why == told.why;
    });
    if (like == report_.end()) {
      report_.push_back(std::move(told));
    } else {
      ++like->n;
    }
  }
}

void OwnStep::add_to(StepProgram& program, const LlamaBridge& bridge) {
  const std::shared_ptr<const Plan> made = plan(bridge);
  for (const StepPhase& phase : made->phases) {
    if (phase.kind == PhaseKind::kGgml) {
      program.by_ggml(phase.nodes.end);
    } else {
      program.by_ours(phase.nodes.end, [made, &phase](const StepSite& site) {
        made->launcher.enqueue(phase, site.stream);
      });
    }
  }
}

void OwnStep::give_up(const std::string& why, const LlamaBridge& bridge) {
  why_none_ = why;
  tell(*plan(bridge));
}

}  // namespace unpaced
