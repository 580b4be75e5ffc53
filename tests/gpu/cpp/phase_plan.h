// The phases of the graph that is open, and programs of some of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "device/kernels/card.h"
#include "device/phases/attention_capture.h"
#include "device/phases/kernel_arguments.h"
#include "device/phases/own_kernels.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/step_program.h"
#include "device/phases/value_places.h"
#include "device/state/cuda_memory.h"

namespace unpaced {

// With what their kernels need.
struct Planned {
  explicit Planned(LlamaBridge& bridge)
      : card(find_card(bridge.device())),
        graph(bridge.graph()),
        phases(plan_phases(graph, kernels_of(bridge, graph, card))),
        places(
            graph, phases, [this](const ProductPart& part) { return takes_records(part, card); },
            product_bytes(phases, card)),
        scratch(places.n_bytes()),
        launcher(places, choices, card) {
    places.begin_at(scratch.data());
    fill_now(scratch.data(), 0, ValuePlaces::kArrivalBytes);
  }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;

  static OwnKernels kernels_of(const LlamaBridge& bridge, const StepGraph& graph,
                               const Card& card) {
    AttentionParts parts;
    find_attention_parts(bridge, graph, parts);
    OwnKernels kernels(card);
    kernels.know(std::move(parts));
    return kernels;
  }

  const Card card;
  const StepGraph graph;
  const std::vector<StepPhase> phases;
  ValuePlaces places;
  const DeviceArray<std::byte> scratch;
  MatVecChoices choices;
  const PhaseLauncher launcher;
};

// Whether a step may have its first n phases from us and the rest from ggml: what the rest reads
// is there.
inline bool may_change_at(const Planned& planned, std::size_t n, const std::vector<bool>& borders) {
  const std::int32_t end = planned.phases[n - 1].nodes.end;
  if (!borders[static_cast<std::size_t>(end)]) return false;
  for (std::size_t i = 0; i < n; ++i) {
    for (const PhaseLaunch& launch : planned.phases[i].launches) {
      const auto* norm = std::get_if<NormLaunch>(&launch);
      const auto* attention = std::get_if<AttentionLaunch>(&launch);
      const ggml_tensor* unwritten = nullptr;
      if (norm != nullptr && !norm->writes_out) unwritten = norm->part.out;
      if (attention != nullptr && !attention->writes_out) unwritten = attention->part.out;
      if (unwritten == nullptr) continue;
      const std::vector<std::int32_t> readers = planned.graph.computing_readers(unwritten);
      if (std::ranges::any_of(readers, [&](std::int32_t reader) { return reader >= end; }))
        return false;
    }
  }
  return true;
}

// The first n phases as they are planned, the others ggml's.
inline StepProgram program_of(const Planned& planned, std::size_t n) {
  StepProgram program;
  for (std::size_t i = 0; i < n; ++i) {
    StepPhase phase = planned.phases[i];
    phase.next_is_ours = phase.next_is_ours && i + 1 < n;
    if (phase.kind == PhaseKind::kGgml) {
      program.by_ggml(phase.nodes.end);
    } else {
      program.by_ours(phase.nodes.end, [&planned, phase](const StepSite& site) {
        planned.launcher.enqueue(phase, site.stream);
      });
    }
  }
  return program.by_ggml(planned.graph.size());
}

}  // namespace unpaced
