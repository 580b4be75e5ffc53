// Which of the phases that there can be go with one another and with what is left to ggml.
#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "device/graph/fusion_borders.h"
#include "device/graph/phase_finder.h"
#include "device/graph/step_phase.h"

namespace unpaced {
namespace {

const ggml_tensor* rounded_input(const PhaseLaunch& launch) {
  if (const auto* product = std::get_if<ProductLaunch>(&launch)) {
    const ProductPart& first = product->parts.front();
    return takes_rounded(first.weights) ? first.input : nullptr;
  }
  if (const auto* gated = std::get_if<GatedLaunch>(&launch)) {
    return takes_rounded(gated->part.up.weights) ? gated->part.up.input : nullptr;
  }
  return nullptr;
}

// Phases of ours in a graph: who rounds what, what is left to ggml, and which are given up since
// they do not go with the rest.
class PhaseJoiner {
 public:
  PhaseJoiner(const StepGraph& graph, const std::vector<StepPart>& parts,
              const PhaseKernels& kernels, PossiblePhases possible)
      : graph_(graph),
        parts_(parts),
        kernels_(kernels),
        why_(std::move(possible.why)),
        ours_(std::move(possible.phases)),
        borders_(fusion_borders(graph)) {}

  std::vector<StepPhase> join() {
    while (give_up_any()) {
    }
    for (StepPhase& phase : ours_) round_inputs(phase);
    return fill();
  }

 private:
  bool give_up_any() {
    if (give_up_refused() || give_up_norms()) return true;
    for (StepPhase& phase : ours_) round_attention(phase);
    return give_up_borders() || give_up_conflicts();
  }

  bool is_border(std::int32_t i) const { return borders_[static_cast<std::size_t>(i)]; }

  // The phases that there is something against; false: none.
  bool give_up(const std::function<std::string(StepPhase&)>& why_not) {
    std::set<std::int32_t> given_up;  // where they begin
    for (StepPhase& phase : ours_) {
      const std::string why = why_not(phase);
      if (why.empty()) continue;
      given_up.insert(phase.nodes.begin);
      tell(phase.nodes, why);
    }
    std::erase_if(ours_,
                  [&](const StepPhase& phase) { return given_up.contains(phase.nodes.begin); });
    return !given_up.empty();
  }

  void tell(const NodeRange& nodes, const std::string& why) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].nodes.begin >= nodes.begin && parts_[i].nodes.end <= nodes.end) why_[i] = why;
    }
  }

  // The phase of ours that the node is in.
  const StepPhase* phase_of(std::int32_t node) const {
    const auto found = std::ranges::find_if(ours_, [&](const StepPhase& phase) {
      return node >= phase.nodes.begin && node < phase.nodes.end;
    });
    return found == ours_.end() ? nullptr : &*found;
  }

  // The node takes the tensor's values as a rounded row, in a phase of ours.
  bool reads_rounded(std::int32_t node, const ggml_tensor* tensor) const {
    const StepPhase* phase = phase_of(node);
    return phase != nullptr && std::ranges::any_of(phase->launches, [&](const PhaseLaunch& launch) {
             const ggml_tensor* input = rounded_input(launch);
             return input != nullptr && origin(input) == tensor && has_node(launch, node);
           });
  }

  bool has_node(const PhaseLaunch& launch, std::int32_t node) const {
    const auto is_of = [&](const ProductPart& part) {
      return graph_.node(node)->src[0] == part.weights &&
             origin(part.input) == origin(graph_.node(node)->src[1]);
    };
    if (const auto* product = std::get_if<ProductLaunch>(&launch)) {
      return std::ranges::any_of(product->parts, is_of);
    }
    const auto* gated = std::get_if<GatedLaunch>(&launch);
    return gated != nullptr && (is_of(gated->part.gate) || is_of(gated->part.up));
  }

  // A norm is ours for its rounded row alone.
  bool give_up_norms() {
    return give_up([&](StepPhase& phase) -> std::string {
      if (phase.kind != PhaseKind::kNorm) return "";
      auto& launch = std::get<NormLaunch>(phase.launches.front());
      const std::vector<std::int32_t> readers = graph_.computing_readers(launch.part.out);
      const auto n_rounded = std::ranges::count_if(
          readers, [&](std::int32_t reader) { return reads_rounded(reader, launch.part.out); });
      launch.rounds = n_rounded > 0;
      launch.writes_out = static_cast<std::size_t>(n_rounded) < readers.size() || readers.empty() ||
                          (launch.part.out->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
      return launch.rounds ? "" : "no product of ours takes its row rounded";
    });
  }

  // Attention leaves its row rounded, if a product of ours takes all heads as one row.
  void round_attention(StepPhase& phase) const {
    auto* launch = std::get_if<AttentionLaunch>(&phase.launches.front());
    if (launch == nullptr) return;
    const ggml_tensor* out = launch->part.out;
    const std::vector<std::int32_t> readers = graph_.computing_readers(out);
    std::size_t n_rounded = 0;
    launch->rounded = nullptr;
    for (const std::int32_t reader : readers) {
      const ggml_tensor* row = graph_.node(reader)->src[1];
      const bool is_whole = row->ne[0] == out->ne[0] * out->ne[1];
      if (!reads_rounded(reader, out) || !is_whole) continue;
      launch->rounded = row;
      ++n_rounded;
    }
    launch->writes_out = n_rounded < readers.size() || readers.empty() ||
                         (out->flags & GGML_TENSOR_FLAG_OUTPUT) != 0;
  }

  // Something computes between two nodes.
  bool computes(std::int32_t begin, std::int32_t end) const {
    return graph_.next_computing(begin) < end;
  }

  bool give_up_borders() {
    std::set<std::int32_t> begins;
    std::set<std::int32_t> ends;
    std::int32_t end = 0;
    for (const StepPhase& phase : ours_) {
      if (computes(end, phase.nodes.begin)) {
        if (!is_border(end)) ends.insert(end);
        if (!is_border(phase.nodes.begin)) begins.insert(phase.nodes.begin);
      }
      end = phase.nodes.end;
    }
    if (computes(end, graph_.size()) && !is_border(end)) ends.insert(end);
    return give_up([&](StepPhase& phase) -> std::string {
      const bool cuts = begins.contains(phase.nodes.begin) || ends.contains(phase.nodes.end);
      return cuts ? "its border would cut what ggml computes by one kernel" : "";
    });
  }

  bool give_up_refused() {
    return give_up([&](StepPhase& phase) { return kernels_.why_no_phase(graph_, phase); });
  }

  bool give_up_conflicts() {
    return give_up([&](const StepPhase& phase) {
      StepPhase rounding = phase;
      round_inputs(rounding);
      return memory_conflict(graph_, rounding);
    });
  }

  // A norm's phase has rounded it, or attention's.
  bool is_rounded_already(const ggml_tensor* values) const {
    return std::ranges::any_of(ours_, [&](const StepPhase& phase) {
      const auto* norm = std::get_if<NormLaunch>(&phase.launches.front());
      const auto* attention = std::get_if<AttentionLaunch>(&phase.launches.front());
      return (norm != nullptr && norm->rounds && norm->part.out == values) ||
             (attention != nullptr && attention->rounded != nullptr &&
              attention->part.out == values);
    });
  }

  // Before the products of a phase that take a row which nobody has rounded.
  void round_inputs(StepPhase& phase) const {
    std::vector<PhaseLaunch> launches;
    const ggml_tensor* rounded = nullptr;
    for (PhaseLaunch& launch : phase.launches) {
      const ggml_tensor* input = rounded_input(launch);
      if (input != nullptr && origin(input) != rounded && !is_rounded_already(origin(input))) {
        launches.emplace_back(RoundLaunch{input});
      }
      if (input != nullptr) rounded = origin(input);
      const auto* activation = std::get_if<ActivationLaunch>(&launch);
      if (activation != nullptr && activation->rounds) rounded = activation->part.out;
      launches.push_back(std::move(launch));
    }
    phase.launches = std::move(launches);
  }

  // Between phases of ours: ggml's, or views, which go to the phase before.
  std::vector<StepPhase> fill() const {
    std::vector<StepPhase> all;
    std::int32_t end = 0;
    const auto reach = [&](std::int32_t begin) {
      if (begin == end) return;
      if (computes(end, begin) || all.empty()) {
        all.push_back({{end, begin}, PhaseKind::kGgml, {}, why_of({end, begin})});
      } else {
        all.back().nodes.end = begin;
      }
      end = begin;
    };
    for (const StepPhase& phase : ours_) {
      reach(phase.nodes.begin);
      all.push_back(phase);
      end = phase.nodes.end;
    }
    reach(graph_.size());
    return all;
  }

  // The reasons of the parts, each once.
  std::string why_of(const NodeRange& nodes) const {
    std::string all;
    std::set<std::string> told;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const bool within = parts_[i].nodes.begin >= nodes.begin && parts_[i].nodes.begin < nodes.end;
      if (!within || why_[i].empty() || !told.insert(why_[i]).second) continue;
      if (!all.empty()) all += "; ";
      all += why_[i];
    }
    return all;
  }

  const StepGraph& graph_;
  const std::vector<StepPart>& parts_;
  const PhaseKernels& kernels_;
  std::vector<std::string> why_;
  std::vector<StepPhase> ours_;
  const std::vector<bool> borders_;
};

}  // namespace

std::vector<StepPhase> plan_phases(const StepGraph& graph, const PhaseKernels& kernels) {
  const std::vector<StepPart> parts = find_parts(graph);
  std::vector<StepPhase> phases =
      PhaseJoiner(graph, parts, kernels, find_phases(parts, kernels)).join();
  // What comes behind the graph waits before it reads, or is no kernel.
  for (std::size_t i = 0; i < phases.size(); ++i) {
    phases[i].next_is_ours = i + 1 == phases.size() || phases[i + 1].kind != PhaseKind::kGgml;
  }
  return phases;
}

bool takes_rounded(const ggml_tensor* weights) noexcept { return ggml_is_quantized(weights->type); }

std::string name_of(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kNorm:
      return "norm";
    case PhaseKind::kAttentionInput:
      return "attention input";
    case PhaseKind::kAttention:
      return "attention";
    case PhaseKind::kExpertChoice:
      return "experts' choice";
    case PhaseKind::kFeedForward:
      return "feed-forward";
    case PhaseKind::kProduct:
      return "product";
    case PhaseKind::kGgml:
      break;
  }
  return "ggml";
}

}  // namespace unpaced
