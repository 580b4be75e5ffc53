// Whether the kernels of a phase leave one another what they read.
#include <algorithm>

#include "device/graph/step_phase.h"

namespace unpaced {
namespace {

// What a kernel reads of the graph's memory, and what it writes there.
struct Accesses {
  std::vector<const ggml_tensor*> reads;
  // Read where it is written, by the thread that writes: only there may they be the same memory.
  std::vector<const ggml_tensor*> reads_in_place;
  std::vector<const ggml_tensor*> writes;
};

class AccessList {
 public:
  AccessList(const StepGraph& graph, const StepPhase& phase) : graph_(graph), phase_(phase) {}

  Accesses of(const PhaseLaunch& launch) {
    found_ = {};
    std::visit([this](const auto& known) { add(known); }, launch);
    return found_;
  }

 private:
  // Made by a kernel of this phase: it lies in memory of ours.
  bool is_inner(const ggml_tensor* tensor) const {
    const std::int32_t at = graph_.index_of(origin(tensor));
    return at >= phase_.nodes.begin && at < phase_.nodes.end;
  }
  void read(const ggml_tensor* tensor) {
    if (tensor != nullptr && !is_inner(tensor)) found_.reads.push_back(tensor);
  }
  void read_in_place(const ggml_tensor* tensor) {
    if (tensor != nullptr && !is_inner(tensor)) found_.reads_in_place.push_back(tensor);
  }
  void write(const ggml_tensor* tensor) {
    if (graph_.is_read_outside(tensor, phase_.nodes)) found_.writes.push_back(tensor);
  }

  void add(const ProductPart& part) {
    if (!takes_rounded(part.weights)) read(part.input);
    read(part.experts);
    if (part.experts == nullptr) {
      read_in_place(part.added);
    } else {
      read(part.added);
    }
  }

  void add_norm(const NormPart& part) {
    read_in_place(part.input);
    read_in_place(part.added);
  }
  void add(const NormLaunch& launch) {
    // One block has read the row when it writes; and what is summed, wherever it lies.
    if (launch.sum) found_.writes.push_back(launch.sum->out);
    if (launch.before) add_norm(*launch.before);
    add_norm(launch.part);
    if (launch.before) found_.writes.push_back(launch.before->out);
    if (launch.writes_out) found_.writes.push_back(launch.part.out);
  }
  // The block has read the logits when it writes.
  void add(const ExpertChoiceLaunch& launch) {
    write(launch.part.experts);
    write(launch.part.out);
  }
  void add(const RoundLaunch& launch) { read(launch.input); }
  void add(const ProductLaunch& launch) {
    for (const ProductPart& part : launch.parts) {
      add(part);
      write(part.out);
    }
  }
  void add(const GatedLaunch& launch) {
    add(launch.part.gate);
    add(launch.part.up);
    write(launch.part.out);
  }
  void add(const ActivationLaunch& launch) {
    read(launch.part.input);
    write(launch.part.out);
  }
  void add(const RopeLaunch& launch) {
    for (const RopePart& part : launch.ropes) {
      read(part.input);
      read(part.rope->src[1]);
      read(part.rope->src[2]);
      write(part.out);
    }
    for (const CacheWritePart& part : launch.writes) {
      read(part.input);
      read(part.rows);
      found_.writes.push_back(part.out);
    }
  }
  void add(const AttentionLaunch& launch) {
    for (const ggml_tensor* source : launch.part.out->src) read(source);
    if (launch.writes_out) write(launch.part.out);
  }

  const StepGraph& graph_;
  const StepPhase& phase_;
  Accesses found_;
};

bool is_same_memory(const ggml_tensor* a, const ggml_tensor* b) {
  return a->data == b->data && ggml_nbytes(a) == ggml_nbytes(b);
}

// The first of `reads` that a write into `written` would spoil.
const ggml_tensor* spoiled(const ggml_tensor* written,
                           const std::vector<const ggml_tensor*>& reads) {
  const auto found =
      std::ranges::find_if(reads, [&](const ggml_tensor* read) { return overlap(written, read); });
  return found == reads.end() ? nullptr : *found;
}

std::string tell(const ggml_tensor* written, const ggml_tensor* read) {
  return std::string(written->name) + " lies where " + read->name + " is still read";
}

}  // namespace

std::string memory_conflict(const StepGraph& graph, const StepPhase& phase) {
  AccessList list(graph, phase);
  std::vector<Accesses> all;
  for (const PhaseLaunch& launch : phase.launches) all.push_back(list.of(launch));
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const ggml_tensor* written : all[i].writes) {
      for (std::size_t j = i; j < all.size(); ++j) {
        if (const auto* read = spoiled(written, all[j].reads)) return tell(written, read);
        const auto* read = spoiled(written, all[j].reads_in_place);
        const bool in_place = read != nullptr && i == j && is_same_memory(written, read);
        if (read != nullptr && !in_place) return tell(written, read);
      }
    }
  }
  return "";
}

}  // namespace unpaced
