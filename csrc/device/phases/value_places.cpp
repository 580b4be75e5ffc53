#include "device/phases/value_places.h"

#include <algorithm>
#include <vector>

#include "device/kernels/rows/batch_records.h"
#include "device/phases/shared_memory.h"

namespace unpaced {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t n_bytes) {
  return (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

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

// Rows that one phase leaves rounded, and the last one that reads them.
struct RoundedRows {
  const ggml_tensor* rows;
  std::size_t from, until;
};

RoundedRows* find(std::vector<RoundedRows>& all, const ggml_tensor* rows) {
  if (rows == nullptr) return nullptr;
  const auto found = std::ranges::find(all, origin(rows),
                                       [](const RoundedRows& known) { return origin(known.rows); });
  return found == all.end() ? nullptr : &*found;
}

// The rows that the launch leaves rounded; nullptr: none.
const ggml_tensor* rounded_by(const PhaseLaunch& launch) {
  if (const auto* norm = std::get_if<NormLaunch>(&launch))
    return norm->rounds ? norm->part.out : nullptr;
  if (const auto* round = std::get_if<RoundLaunch>(&launch)) return round->input;
  if (const auto* activation = std::get_if<ActivationLaunch>(&launch))
    return activation->rounds ? activation->part.out : nullptr;
  const auto* attention = std::get_if<AttentionLaunch>(&launch);
  return attention == nullptr ? nullptr : attention->rounded;
}

// The rows that it multiplies; nullptr: none.
const ggml_tensor* input_of(const PhaseLaunch& launch) {
  if (const auto* products = std::get_if<ProductLaunch>(&launch))
    return products->parts.front().input;
  const auto* gated = std::get_if<GatedLaunch>(&launch);
  return gated == nullptr ? nullptr : gated->part.up.input;
}

}  // namespace

ValuePlaces::ValuePlaces(const StepGraph& graph, std::span<const StepPhase> phases,
                         const TakesRecords& takes_records, std::size_t product_bytes) {
  static_cast<void>(take(kArrivalBytes));
  sums_ = take(product_bytes);
  place_rounded(phases, recorded_in(phases, takes_records));
  const std::size_t begin = next_;
  for (const StepPhase& phase : phases) {
    next_ = begin;
    add_phase(graph, phase);
  }
}

std::size_t ValuePlaces::take(std::size_t n_bytes) {
  const std::size_t at = next_;
  next_ += aligned(n_bytes);
  n_bytes_ = std::max(n_bytes_, next_);
  return at;
}

void ValuePlaces::add_floats(const StepGraph& graph, const NodeRange& nodes,
                             const ggml_tensor* value) {
  if (!graph.is_read_outside(value, nodes)) floats_[value] = take(ggml_nbytes(value));
}

void ValuePlaces::place_rounded(std::span<const StepPhase> phases, const Recorded& recorded) {
  std::vector<RoundedRows> all;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    for (const PhaseLaunch& launch : phases[i].launches) {
      if (const ggml_tensor* rows = rounded_by(launch); rows != nullptr && !find(all, rows))
        all.push_back({rows, i, i});
      if (RoundedRows* read = find(all, input_of(launch))) read->until = i;
    }
  }
  SharedMemory memory(kAlignment);
  for (const RoundedRows& rows : all) {
    const auto found = recorded.find(origin(rows.rows));
    const bool is_recorded = found != recorded.end(), is_batch = is_recorded && found->second;
    const auto n_rows = static_cast<std::int32_t>(ggml_nrows(rows.rows));
    const std::size_t n_blocks = aligned(rounded_bytes(rows.rows));
    const std::int64_t n_records = !is_recorded ? 0
                                   : is_batch   ? batch_record_bytes(rows.rows->ne[0], n_rows)
                                                : records_bytes(rows.rows->ne[0], n_rows);
    const std::size_t at =
        next_ + memory.place(n_blocks + static_cast<std::size_t>(n_records), rows.from, rows.until);
    rounded_[origin(rows.rows)] = at;
    if (is_recorded)
      records_[origin(rows.rows)] = {at + n_blocks, is_batch ? record_eights(n_rows) : 0};
  }
  static_cast<void>(take(memory.n_bytes()));
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
