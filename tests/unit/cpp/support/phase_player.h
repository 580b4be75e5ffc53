// Makes a step from its phases on the CPU: phases of ours by the same operations as ggml's, but in
// our launches' order and in our memory. So its logits are the step's, bit by bit, exactly if the
// phases leave nothing out and spoil nothing.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "backend/cpu_backend.h"
#include "check.h"
#include "device/graph/step_phase.h"
#include "device/phases/value_places.h"

namespace unpaced::test {

class PhasePlayer {
 public:
  PhasePlayer(const StepGraph& graph, const std::vector<StepPhase>& phases)
      : graph_(graph),
        phases_(phases),
        places_(graph, phases),
        scratch_(places_.n_bytes(), std::byte{0xff}),
        cpu_(one_thread()) {
    places_.begin_at(scratch_.data());
  }

  void play() {
    for (const StepPhase& phase : phases_) {
      if (phase.kind == PhaseKind::kGgml) {
        compute_nodes(phase.nodes);
      } else {
        play(phase);
      }
    }
  }

  // As they stand in the graph.
  void compute_nodes(const NodeRange& range) {
    std::vector<ggml_tensor*> nodes;
    for (std::int32_t i = range.begin; i < range.end; ++i) {
      nodes.push_back(const_cast<ggml_tensor*>(graph_.node(i)));
    }
    compute(nodes);
  }

 private:
  struct Freed {
    void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    void operator()(ggml_context* context) const { ggml_free(context); }
  };

  // By the registry: a portable build is not linked with the CPU's functions.
  static ggml_backend_t one_thread() {
    init_backends();
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_t cpu = ggml_backend_dev_init(device, nullptr);
    const auto set_n_threads =
        reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
    REQUIRE(cpu != nullptr && set_n_threads != nullptr);
    set_n_threads(cpu, 1);
    return cpu;
  }

  void compute(const std::vector<ggml_tensor*>& nodes) {
    const std::size_t n = nodes.size() + 1;
    const std::unique_ptr<ggml_context, Freed> context(
        ggml_init({ggml_graph_overhead_custom(n, false), nullptr, true}));
    ggml_cgraph* graph = ggml_new_graph_custom(context.get(), n, false);
    for (ggml_tensor* node : nodes) ggml_graph_add_node(graph, node);
    REQUIRE(ggml_backend_graph_compute(cpu_.get(), graph) == GGML_STATUS_SUCCESS);
  }

  // Nodes of the phase that the value hangs on and that have not been computed, in order.
  void collect(const StepPhase& phase, const ggml_tensor* value, std::set<std::int32_t>& found) {
    const std::int32_t at = graph_.index_of(value);
    if (at < phase.nodes.begin || at >= phase.nodes.end || done_.contains(at)) return;
    if (!found.insert(at).second) return;
    for (const ggml_tensor* source : value->src) {
      if (source != nullptr) collect(phase, source, found);
    }
  }

  static std::vector<const ggml_tensor*> outputs_of(const PhaseLaunch& launch) {
    std::vector<const ggml_tensor*> outputs;
    if (const auto* norm = std::get_if<NormLaunch>(&launch)) {
      if (norm->sum) outputs.push_back(norm->sum->out);
      if (norm->before) outputs.push_back(norm->before->out);
      outputs.push_back(norm->part.out);
    } else if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      for (const ProductPart& part : products->parts) outputs.push_back(part.out);
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launch)) {
      outputs.push_back(gated->part.out);
    } else if (const auto* activation = std::get_if<ActivationLaunch>(&launch)) {
      outputs.push_back(activation->part.out);
    } else if (const auto* heads = std::get_if<RopeLaunch>(&launch)) {
      for (const RopePart& part : heads->ropes) outputs.push_back(part.out);
      for (const CacheWritePart& part : heads->writes) outputs.push_back(part.out);
    } else if (const auto* attention = std::get_if<AttentionLaunch>(&launch)) {
      outputs.push_back(attention->part.out);
    } else if (const auto* choice = std::get_if<ExpertChoiceLaunch>(&launch)) {
      outputs.push_back(choice->part.experts);
      outputs.push_back(choice->part.out);
    }
    return outputs;
  }

  // The row that the launch leaves rounded; nullptr: none.
  static const ggml_tensor* rounded_by(const PhaseLaunch& launch) {
    const auto* norm = std::get_if<NormLaunch>(&launch);
    const auto* activation = std::get_if<ActivationLaunch>(&launch);
    const auto* attention = std::get_if<AttentionLaunch>(&launch);
    if (norm != nullptr && norm->rounds) return norm->part.out;
    if (activation != nullptr && activation->rounds) return activation->part.out;
    return attention == nullptr ? nullptr : attention->rounded;
  }

  // Somebody reads the floats that the launch leaves there.
  static bool leaves(const PhaseLaunch& launch, const ggml_tensor* node) {
    const auto* norm = std::get_if<NormLaunch>(&launch);
    const auto* attention = std::get_if<AttentionLaunch>(&launch);
    if (norm != nullptr && node == norm->part.out) return norm->writes_out;
    return attention == nullptr || node != attention->part.out || attention->writes_out;
  }

  void play(const StepPhase& phase) {
    done_.clear();
    for (const PhaseLaunch& launch : phase.launches) {
      if (const auto* round = std::get_if<RoundLaunch>(&launch)) {
        keep(round->input, reinterpret_cast<const std::byte*>(places_.floats(round->input)));
        continue;
      }
      play(phase, launch);
    }
  }

  // The floats that a rounded row is made from, instead of the row.
  void keep(const ggml_tensor* rows, const std::byte* from) {
    // The row has its place: nobody else's values lie there.
    const auto n = static_cast<std::size_t>(q8_blocks(rows->ne[0]) * ggml_nrows(rows));
    std::memset(places_.rounded(rows), 0x7f, n * sizeof(Q8Block));
    rounded_[origin(rows)].assign(from, from + ggml_nbytes(rows));
  }

  void play(const StepPhase& phase, const PhaseLaunch& launch) {
    const std::vector<const ggml_tensor*> outputs = outputs_of(launch);
    std::set<std::int32_t> indices;
    for (const ggml_tensor* output : outputs) collect(phase, output, indices);
    const std::set<const ggml_tensor*> left(outputs.begin(), outputs.end());
    copies_.clear();
    inner_.clear();
    std::vector<ggml_tensor*> nodes;
    for (const std::int32_t i : indices) {
      const ggml_tensor* node = graph_.node(i);
      nodes.push_back(copy_of(node, left.contains(node) && leaves(launch, node), launch));
    }
    compute(nodes);
    done_.insert(indices.begin(), indices.end());
    if (const ggml_tensor* row = rounded_by(launch)) {
      keep(row, static_cast<const std::byte*>(copies_.at(outputs.back())->data));
    }
  }

  // The node with its sources where our kernel reads them and its values where it leaves them;
  // what is within a kernel lies by itself.
  ggml_tensor* copy_of(const ggml_tensor* node, bool is_left, const PhaseLaunch& launch) {
    auto copy = std::make_unique<ggml_tensor>(*node);
    ggml_tensor* made = copy.get();
    for (ggml_tensor*& source : made->src) {
      if (source != nullptr) source = source_of(source, launch);
    }
    if (is_view(node)) {
      made->data = made->src[0] == nullptr ? made->data : moved(node, made->src[0]);
    } else if (is_left) {
      // A row of the cache is written where the cache is.
      const bool is_row = node->op == GGML_OP_SET_ROWS;
      made->data = is_row ? node->data : places_.floats(node);
    } else {
      inner_.emplace_back(ggml_nbytes(node));
      made->data = inner_.back().data();
    }
    copies_[node] = made;
    owned_.push_back(std::move(copy));
    return made;
  }

  static void* moved(const ggml_tensor* view, const ggml_tensor* source) {
    const auto offset = static_cast<const std::byte*>(view->data) -
                        static_cast<const std::byte*>(view->src[0]->data);
    return static_cast<std::byte*>(source->data) + offset;
  }

  ggml_tensor* source_of(ggml_tensor* source, const PhaseLaunch& launch) {
    if (const auto found = copies_.find(source); found != copies_.end()) return found->second;
    auto copy = std::make_unique<ggml_tensor>(*source);
    if (reads_rounded(launch, source)) {
      copy->data = rounded_.at(origin(source)).data();
    } else if (source->type == GGML_TYPE_F32) {
      copy->data = places_.floats(source);
    }
    owned_.push_back(std::move(copy));
    return owned_.back().get();
  }

  static bool reads_rounded(const PhaseLaunch& launch, const ggml_tensor* source) {
    const auto is_input = [source](const ProductPart& part) {
      return takes_rounded(part.weights) && origin(part.input) == origin(source) &&
             part.added != source;
    };
    if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      return is_input(products->parts.front());
    }
    const auto* gated = std::get_if<GatedLaunch>(&launch);
    return gated != nullptr && is_input(gated->part.up);
  }

  const StepGraph& graph_;
  const std::vector<StepPhase>& phases_;
  ValuePlaces places_;
  std::vector<std::byte> scratch_;
  std::unique_ptr<ggml_backend, Freed> cpu_;
  std::map<const ggml_tensor*, std::vector<std::byte>> rounded_;
  std::map<const ggml_tensor*, ggml_tensor*> copies_;
  std::vector<std::unique_ptr<ggml_tensor>> owned_;
  std::vector<std::vector<std::byte>> inner_;
  std::set<std::int32_t> done_;  // nodes of the phase at hand
};

}  // namespace unpaced::test
