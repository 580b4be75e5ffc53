#include "device/loop/own_step.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "device/kernels/choice_file.h"
#include "device/kernels/choice_place.h"
#include "device/phases/attention_capture.h"
#include "device/phases/kernel_arguments.h"
#include "device/phases/phase_launcher.h"
#include "device/phases/trials/phase_trial.h"
#include "device/phases/trials/phase_tuner.h"
#include "device/phases/trials/step_trials.h"
#include "device/phases/value_places.h"

namespace unpaced {
namespace {

constexpr std::chrono::milliseconds kTuning{150};
constexpr std::chrono::milliseconds kSettling{150};

bool is_ours(const StepPhase& phase) { return phase.kind != PhaseKind::kGgml; }

// ggml's kernels of these sum in an order that hangs on how many rows there are.
bool sums_by_company(const ggml_tensor* node) {
  return node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID ||
         node->op == GGML_OP_FLASH_ATTN_EXT;
}

void refuse_company(const StepGraph& graph, std::span<const StepPhase> phases) {
  for (const StepPhase& phase : phases) {
    if (is_ours(phase)) continue;
    for (std::int32_t i = phase.nodes.begin; i < phase.nodes.end; ++i) {
      if (!sums_by_company(graph.node(i))) continue;
      throw std::runtime_error(std::string("rows are not as alone: ") +
                               ggml_op_name(graph.node(i)->op) + " is by ggml's kernel (" +
                               phase.why + ")");
    }
  }
}

}  // namespace

// What the kernels of a graph's phases are asked for. Its tensors are the graph's.
struct OwnStep::Plan {
  Plan(StepGraph g, std::vector<StepPhase> p, const MatVecChoices& choices, const Card& card,
       const QueryWindows& windows)
      : graph(std::move(g)),
        phases(std::move(p)),
        places(
            graph, phases, [&card](const ProductPart& part) { return takes_records(part, card); },
            product_bytes(phases, card)),
        launcher(places, choices, card, windows) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const StepGraph graph;
  const std::vector<StepPhase> phases;
  ValuePlaces places;
  const PhaseLauncher launcher;
};

OwnStep::OwnStep(const LlamaBridge& bridge, StepKernels choice, std::string choices_folder,
                 bool rows_as_alone)
    : card_(find_card(bridge.device())),
      choice_(choice),
      choices_folder_(std::move(choices_folder)),
      kernels_(card_),
      rows_as_alone_(rows_as_alone) {}

std::string OwnStep::why_ggml(std::int32_t n_rows) const {
  if (choice_ == StepKernels::kGgml) return "the configuration asks for it";
  if (const auto found = why_ggml_.find(n_rows); found != why_ggml_.end() && !found->second.empty())
    return found->second;
  return "";
}

void OwnStep::prepare(LlamaBridge& bridge, std::chrono::microseconds limit) {
  bridge.open({.stream = 0, .n_kv = bridge.window_cells(1)});
  trials_.clear();
  if (why_ggml(1).empty()) {
    test(bridge, limit);
    test_attention(bridge, limit);
  }
  trial_.reset();
  tell(*plan(bridge));
}

std::shared_ptr<const OwnStep::Plan> OwnStep::plan(const LlamaBridge& bridge) {
  StepGraph graph = bridge.graph();
  const bool is_as_alone = rows_as_alone_ && bridge.window().n_tokens > 1;
  if (is_as_alone) graph.have_rows_as_alone();
  const std::string why = why_ggml(bridge.window().n_tokens);
  std::vector<StepPhase> phases{{{0, graph.size()}, PhaseKind::kGgml, {}, why}};
  if (why.empty()) {
    if (!is_as_alone) find_attention_parts(bridge, graph, attention_parts_);
    kernels_.know(attention_parts_);
    phases = plan_phases(graph, kernels_);
  }
  if (is_as_alone) refuse_company(graph, phases);
  QueryWindows windows;
  if (row_parts_ != nullptr) {
    windows = {.positions = bridge.inputs().position,
               .cell_numbers = bridge.inputs().k_index,
               .cache_cells = bridge.n_cells(),
               .cells = row_windows_.cells(),
               .parts = row_parts_->data()};
  }
  auto plan = std::make_shared<Plan>(std::move(graph), std::move(phases), choices_, card_, windows);
  plan->places.begin_at(scratch_of(plan->places.n_bytes()));
  return plan;
}

std::byte* OwnStep::scratch_of(std::size_t n_bytes) {
  if (n_bytes == 0) return nullptr;
  // Another window may have more phases of ours. Graphs that were captured hold the addresses of
  // what they had.
  if (scratch_.empty() || scratch_.back().size() < n_bytes) {
    scratch_.emplace_back(n_bytes);
    fill_now(scratch_.back().data(), 0, ValuePlaces::kArrivalBytes);
  }
  return scratch_.back().data();
}

void OwnStep::clear_cache_of(PhaseTrial& trial) {
  try {
    trial_ = std::make_unique<DeviceArray<std::byte>>(kTrialBytes);
    trial.clear_cache_by({trial_->data(), trial_->size()});
  } catch (const EngineLost&) {
    throw;
  } catch (const std::runtime_error&) {  // there is not so much
  }
}

void OwnStep::test(LlamaBridge& bridge, std::chrono::microseconds limit) {
  const std::shared_ptr<const Plan> all = plan(bridge);
  PhaseTrial trial(bridge, all->graph, all->places, all->launcher, limit);
  const bool measures = choice_ == StepKernels::kAuto;
  if (measures) clear_cache_of(trial);
  PhaseTuner tuner(trial, choices_, card_);
  ChoiceFile kept(measures ? choice_path(choices_folder_, bridge.device()) : "",
                  measures ? choice_place(bridge.device()) : "");
  StepTrials step_trials(trial, measures ? &tuner : nullptr, kept,
                         StepTrials::Clock::now() + kTuning);
  std::vector<PhaseTrialReport> trials;
  if (!all->graph.has_rows_as_alone()) {
    trials = step_trials.run(all->graph, all->phases, kernels_);
    if (measures && bridge.window().n_tokens == 1)
      step_trials.settle(all->graph, all->phases, kernels_, StepTrials::Clock::now() + kSettling);
  } else if (measures) {
    trials = step_trials.tune(all->graph, all->phases);
  }
  const auto is_new = [](const PhaseTrialReport& told) { return told.measured; };
  if (std::ranges::any_of(trials, is_new)) static_cast<void>(kept.save());
  for (PhaseTrialReport& told : trials) {
    told.n_rows = bridge.window().n_tokens;
    trials_.push_back(std::move(told));
  }
}

void OwnStep::find_row_windows(LlamaBridge& bridge) {
  row_windows_ = RowWindows(kWindowCells);
  for (std::int32_t n = kWindowCells; n <= bridge.n_cells(); n += kWindowCells) {
    bridge.open({.stream = 0, .n_kv = n});
    const StepGraph graph = bridge.graph();
    find_attention_parts(bridge, graph, attention_parts_);
    std::set<std::int32_t> parts;
    for (std::int32_t i = 0; i < graph.size(); ++i) {
      if (graph.node(i)->op == GGML_OP_FLASH_ATTN_EXT)
        parts.insert(attention_parts_.of(graph.node(i)));
    }
    if (parts.size() != 1 || *parts.begin() < 1) break;
    row_windows_.add(*parts.begin());
  }
  const std::span<const std::uint16_t> found = row_windows_.parts();
  if (found.empty())
    throw std::runtime_error(
        "rows are not as alone: ggml's attention of one row is by another kernel");
  bridge.scatter_rows();
  row_parts_ = std::make_unique<DeviceArray<std::uint16_t>>(found.size());
  copy_up_now(row_parts_->data(), found.data(), found.size_bytes());
  kernels_.know(row_windows_);
}

void OwnStep::prepare_rows(LlamaBridge& bridge, std::int32_t n_rows_most,
                           std::chrono::microseconds limit) {
  if (rows_as_alone_) find_row_windows(bridge);
  if (choice_ == StepKernels::kGgml) return;
  // As alone, more than eight have the products of eight.
  const std::int32_t n_most = rows_as_alone_ ? kMatVecColumns : kMaxOwnRows;
  std::int32_t n_before = 1;
  for (const std::int32_t n : {2, 4, 8, 16, 24, 32}) {
    if (n_before >= n_rows_most || n > n_most) break;
    n_before = n;
    const std::int32_t n_rows = std::min(n, n_rows_most);
    bridge.open(bridge.rows_window(0, bridge.window_cells(1), n_rows));
    test(bridge, limit);
  }
  trial_.reset();
}

void OwnStep::test_attention(LlamaBridge& bridge, std::chrono::microseconds limit) {
  // The largest that ours is used for: a head has more parts there, or more cells in each.
  const Window first{.stream = 0, .n_kv = bridge.window_cells(1)};
  const std::int32_t most = std::min(bridge.n_cells(), kAttentionCellsMost);
  const Window larger{.stream = 0, .n_kv = bridge.window_cells(most)};
  if (larger == first) return;
  bridge.open(larger);
  const std::shared_ptr<const Plan> all = plan(bridge);
  std::vector<StepPhase> attentions;
  std::ranges::copy_if(all->phases, std::back_inserter(attentions),
                       [](const StepPhase& phase) { return phase.kind == PhaseKind::kAttention; });
  PhaseTrial trial(bridge, all->graph, all->places, all->launcher, limit);
  ChoiceFile none("", "");
  for (const PhaseTrialReport& told : StepTrials(trial, nullptr, none, StepTrials::Clock::now())
                                          .run(all->graph, attentions, kernels_)) {
    const auto of_it = std::ranges::find(trials_, told.phase, &PhaseTrialReport::phase);
    if (of_it != trials_.end()) of_it->ms += told.ms;
  }
  bridge.open(first);
}

void OwnStep::tell(const Plan& plan) {
  report_.clear();
  has_own_ = false;
  for (const StepPhase& phase : plan.phases) {
    has_own_ = has_own_ || is_ours(phase);
    StepPhaseReport told{name_of(phase.kind), is_ours(phase), phase.why, 1};
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
    if (!is_ours(phase)) {
      program.by_ggml(phase.nodes.end);
    } else {
      rows_with_own_.insert(bridge.window().n_tokens);
      program.by_ours(phase.nodes.end, [made, &phase](const StepSite& site) {
        made->launcher.enqueue(phase, site.stream);
      });
    }
  }
}

void OwnStep::give_up(const std::string& why, const LlamaBridge& bridge) {
  why_ggml_[1] = why;
  tell(*plan(bridge));
}

}  // namespace unpaced
