#include "device/phases/value_places.h"

#include <algorithm>

#include "device/kernels/rows/batch_records.h"

namespace unpaced {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t rounded_bytes(const ggml_tensor* rows) {
  return static_cast<std::size_t>(q8_blocks(rows->ne[0]) * ggml_nrows(rows)) * sizeof(Q8Block);
}

bool has_records(const ggml_tensor* rows) {
  return ggml_nrows(rows) >= kRecordColumnsLeast && rows->ne[0] <= kRecordValuesMost;
}

// What is read as records, and whether as batch records.
std::map<const ggml_tensor*, bool> recorded_in(std::span<const StepPhase> phases,
                                               const ValuePlaces::TakesRecords& takes_records) {
  std::map<const ggml_tensor*, bool> inputs;
  const auto add = [&](const ProductPart& part) {
    const bool is_batch = part.order_columns > kMatVecColumns;
    if (is_batch || (has_records(part.input) && takes_records && takes_records(part)))
      inputs[origin(part.input)] = is_batch;
  };
  for (const StepPhase& phase : phases) {
    for (const PhaseLaunch& launch : phase.launches) {
      if (const auto* products = std::get_if<ProductLaunch>(&launch))
        std::ranges::for_each(products->parts, add);
      if (const auto* gated = std::get_if<GatedLaunch>(&launch)) add(gated->part.up);
    }
  }
  return inputs;
}

}  // namespace

ValuePlaces::ValuePlaces(const StepGraph& graph, std::span<const StepPhase> phases,
                         const TakesRecords& takes_records, std::size_t product_bytes) {
  static_cast<void>(take(kArrivalBytes));
  sums_ = take(product_bytes);
  const Recorded recorded = recorded_in(phases, takes_records);
  // Rounded rows are small, and a norm's is read by later phases: each has a place of its own.
  for (const StepPhase& phase : phases) {
    for (const PhaseLaunch& launch : phase.launches) add_rounded(launch, recorded);
  }
  const std::size_t begin = next_;
  for (const StepPhase& phase : phases) {
    next_ = begin;
    add_phase(graph, phase);
  }
}

std::size_t ValuePlaces::take(std::size_t n_bytes) {
  const std::size_t at = next_;
  next_ += (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
  n_bytes_ = std::max(n_bytes_, next_);
  return at;
}

void ValuePlaces::add_floats(const StepGraph& graph, const NodeRange& nodes,
                             const ggml_tensor* value) {
  if (!graph.is_read_outside(value, nodes)) floats_[value] = take(ggml_nbytes(value));
}

void ValuePlaces::add_rounded(const PhaseLaunch& launch, const Recorded& recorded) {
  const ggml_tensor* rows = nullptr;
  if (const auto* norm = std::get_if<NormLaunch>(&launch); norm != nullptr && norm->rounds) {
    rows = norm->part.out;
  } else if (const auto* round = std::get_if<RoundLaunch>(&launch)) {
    rows = round->input;
  } else if (const auto* activation = std::get_if<ActivationLaunch>(&launch);
             activation != nullptr && activation->rounds) {
    rows = activation->part.out;
  } else if (const auto* attention = std::get_if<AttentionLaunch>(&launch)) {
    rows = attention->rounded;
  }
  if (rows == nullptr || rounded_.contains(origin(rows))) return;
  rounded_[origin(rows)] = take(rounded_bytes(rows));
  const auto found = recorded.find(origin(rows));
  if (found == recorded.end()) return;
  const auto n_rows = static_cast<std::int32_t>(ggml_nrows(rows));
  const std::int64_t n_bytes =
      found->second ? batch_record_bytes(rows->ne[0], n_rows) : records_bytes(rows->ne[0], n_rows);
  records_[origin(rows)] = {take(static_cast<std::size_t>(n_bytes)),
                            found->second ? record_eights(n_rows) : 0};
}

void ValuePlaces::add_phase(const StepGraph& graph, const StepPhase& phase) {
  for (const PhaseLaunch& launch : phase.launches) {
    if (const auto* products = std::get_if<ProductLaunch>(&launch)) {
      for (const ProductPart& part : products->parts) add_floats(graph, phase.nodes, part.out);
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launch)) {
      add_floats(graph, phase.nodes, gated->part.out);
    } else if (const auto* activation = std::get_if<ActivationLaunch>(&launch)) {
      add_floats(graph, phase.nodes, activation->part.out);
    } else if (const auto* heads = std::get_if<RopeLaunch>(&launch)) {
      for (const RopePart& part : heads->ropes) add_floats(graph, phase.nodes, part.out);
    } else if (const auto* attention = std::get_if<AttentionLaunch>(&launch)) {
      const ggml_tensor* out = attention->part.out;
      const std::size_t n_bytes =
          attention_scratch_bytes(static_cast<std::int32_t>(out->ne[1]),
                                  static_cast<std::int32_t>(out->ne[0]), attention->n_parts);
      parts_[out] = take(n_bytes * static_cast<std::size_t>(out->ne[3]));
    }
  }
}

float* ValuePlaces::floats(const ggml_tensor* value) const {
  const ggml_tensor* whole = origin(value);
  const auto found = floats_.find(whole);
  if (found == floats_.end()) return static_cast<float*>(value->data);
  const auto offset =
      static_cast<const std::byte*>(value->data) - static_cast<const std::byte*>(whole->data);
  return reinterpret_cast<float*>(scratch_ + found->second + offset);
}

std::byte* ValuePlaces::parts(const ggml_tensor* attention) const {
  return scratch_ + parts_.at(attention);
}

RecordRows ValuePlaces::records(const ggml_tensor* value) const {
  const auto found = records_.find(origin(value));
  if (found == records_.end()) return {};
  return {reinterpret_cast<std::uint8_t*>(scratch_ + found->second.at), found->second.n_eights};
}

Q8Block* ValuePlaces::rounded(const ggml_tensor* value) const {
  return reinterpret_cast<Q8Block*>(scratch_ + rounded_.at(origin(value)));
}

}  // namespace unpaced
