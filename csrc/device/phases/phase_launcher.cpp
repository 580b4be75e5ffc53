#include "device/phases/phase_launcher.h"

#include <algorithm>

#include "device/kernels/experts/expert_choice.h"
#include "device/kernels/rows/norm_row.h"
#include "device/kernels/rows/record_columns.h"
#include "device/phases/kernel_arguments.h"

namespace unpaced {
namespace {

// Which of them the launch's products are by; nullptr: it has none.
const ggml_tensor* experts_of(const PhaseLaunch& launch) {
  if (const auto* gated = std::get_if<GatedLaunch>(&launch)) return gated->part.up.experts;
  const auto* products = std::get_if<ProductLaunch>(&launch);
  return products == nullptr ? nullptr : products->parts.front().experts;
}

const float* data_of(const ggml_tensor* weight) { return static_cast<const float*>(weight->data); }

}  // namespace

void PhaseLauncher::enqueue(const StepPhase& phase, CUstream_st* stream) const {
  const ggml_tensor* experts = nullptr;
  for (const PhaseLaunch& launch : phase.launches) {
    const ggml_tensor* own = experts_of(launch);
    const Place place{stream, phase.next_is_ours || &launch != &phase.launches.back(),
                      own != nullptr && own == experts};
    std::visit([&](const auto& known) { enqueue(known, place); }, launch);
    if (own != nullptr) experts = own;
  }
}

void PhaseLauncher::enqueue(const NormLaunch& launch, const Place& place) const {
  NormRow row;
  const auto fill = [&](const NormPart& part, bool writes) {
    return RowNorm{.input = places_.floats(part.input),
                   .weight = data_of(part.weight),
                   .added = part.added == nullptr ? nullptr : places_.floats(part.added),
                   .out = writes ? places_.floats(part.out) : nullptr,
                   .epsilon = part.epsilon};
  };
  row.n_values = static_cast<std::int32_t>(launch.part.out->ne[0]);
  row.n_rows = static_cast<std::int32_t>(launch.part.out->ne[1]);
  static_assert(kSummedExperts == kSummedExpertsMax);
  if (launch.sum) {
    const ExpertSumPart& sum = *launch.sum;
    row.sum = {.experts = places_.floats(sum.experts),
               .weights = places_.floats(sum.weights),
               .added = places_.floats(sum.added),
               .out = places_.floats(sum.out),
               .n_experts = static_cast<std::int32_t>(sum.experts->ne[1])};
  }
  if (launch.before) {
    row.first = fill(*launch.before, true);
    row.second = fill(launch.part, launch.writes_out);
  } else {
    row.first = fill(launch.part, launch.writes_out);
  }
  if (launch.rounds) {
    row.rounded = places_.rounded(launch.part.out);
    row.records = places_.records(launch.part.out);
  }
  row.next_is_ours = place.next_is_ours;
  enqueue_norm_row(row, card_, place.stream);
}

void PhaseLauncher::enqueue(const ExpertChoiceLaunch& launch, const Place& place) const {
  const ExpertChoicePart& part = launch.part;
  enqueue_expert_choice({.logits = places_.floats(part.logits),
                         .experts = static_cast<std::int32_t*>(part.experts->data),
                         .weights = places_.floats(part.out),
                         .n_experts = static_cast<std::int32_t>(part.logits->ne[0]),
                         .n_chosen = part.n_chosen,
                         .normalises = part.normalises,
                         .least_sum = part.least_sum,
                         .next_is_ours = place.next_is_ours},
                        card_, place.stream);
}

void PhaseLauncher::enqueue(const RoundLaunch& launch, const Place& place) const {
  const ggml_tensor* rows = launch.input;
  enqueue_row_rounding({.input = places_.floats(rows),
                        .input_stride = rows->ne[0],
                        .n_values = static_cast<std::int32_t>(rows->ne[0]),
                        .n_rows = static_cast<std::int32_t>(ggml_nrows(rows)),
                        .next_is_ours = place.next_is_ours,
                        .rounded = places_.rounded(rows),
                        .records = places_.records(rows)},
                       card_, place.stream);
}

void PhaseLauncher::enqueue(MatVec mat_vec, const ProductPart& part, const Place& place) const {
  if (takes_rounded(part.weights)) {
    mat_vec.input_q8 = places_.rounded(part.input);
    mat_vec.input_records = places_.records(part.input).data;
    mat_vec.input_stride = q8_blocks(part.input->ne[0]);
  } else {
    mat_vec.input = places_.floats(part.input);
    mat_vec.input_stride = part.input->ne[0];
  }
  mat_vec.experts_are_known = place.experts_are_known;
  const std::int32_t n = mat_vec.n_columns;
  if (mat_vec.order_columns > kMatVecColumns) {
    mat_vec.next_is_ours = place.next_is_ours;
    return enqueue_mat_mat(mat_vec, places_.product_memory(), card_, place.stream);
  }
  for (std::int32_t first = 0; first < n; first += kMatVecColumns) {
    MatVec columns = columns_of(mat_vec, first, std::min(kMatVecColumns, n - first));
    columns.variant = choices_.of(columns);
    columns.next_is_ours = place.next_is_ours || first + kMatVecColumns < n;
    enqueue_mat_vec(columns, card_, place.stream);
  }
}

void PhaseLauncher::enqueue(const ProductLaunch& launch, const Place& place) const {
  MatVec mat_vec = mat_vec_of(launch.parts);
  for (std::size_t i = 0; i < launch.parts.size(); ++i) {
    const ProductPart& part = launch.parts[i];
    mat_vec.matrices[i].out = places_.floats(part.out);
    if (part.added != nullptr) mat_vec.matrices[i].added = places_.floats(part.added);
  }
  enqueue(mat_vec, launch.parts.front(), place);
}

void PhaseLauncher::enqueue(const GatedLaunch& launch, const Place& place) const {
  MatVec mat_vec = mat_vec_of(launch.part);
  mat_vec.matrices[1].out = places_.floats(launch.part.out);
  enqueue(mat_vec, launch.part.up, place);
}

void PhaseLauncher::enqueue(const ActivationLaunch& launch, const Place& place) const {
  GateRow row = gate_row_of(launch.part);
  row.input = places_.floats(launch.part.input);
  row.out = places_.floats(launch.part.out);
  if (launch.rounds) {
    row.rounded = places_.rounded(launch.part.out);
    row.records = places_.records(launch.part.out);
  }
  row.next_is_ours = place.next_is_ours;
  enqueue_gate_row(row, card_, place.stream);
}

void PhaseLauncher::enqueue(const RopeLaunch& launch, const Place& place) const {
  const HeadRoles roles = roles_of(launch);
  HeadRope rope = head_rope_of(roles);
  rope.query.input = places_.floats(roles.query->input);
  rope.query.out = places_.floats(roles.query->out);
  rope.key.input = places_.floats(roles.key->input);
  rope.value.input = places_.floats(roles.value_row->input);
  rope.next_is_ours = place.next_is_ours;
  enqueue_head_rope(rope, card_, place.stream);
}

void PhaseLauncher::enqueue(const AttentionLaunch& launch, const Place& place) const {
  HeadAttention attention = head_attention_of(launch.part);
  attention.n_parts = launch.n_parts;
  attention.windows = windows_;
  attention.scratch_row_bytes = static_cast<std::int64_t>(
      attention_scratch_bytes(attention.n_heads, attention.head_size, attention.n_parts));
  attention.queries = places_.floats(launch.part.out->src[0]);
  if (launch.writes_out) attention.out = places_.floats(launch.part.out);
  if (launch.rounded != nullptr) {
    attention.rounded = places_.rounded(launch.rounded);
    attention.records = places_.records(launch.rounded).data;
  }
  attention.scratch = places_.parts(launch.part.out);
  attention.arrivals = places_.arrivals();
  attention.next_is_ours = place.next_is_ours;
  enqueue_head_attention(attention, card_, place.stream);
}

}  // namespace unpaced
