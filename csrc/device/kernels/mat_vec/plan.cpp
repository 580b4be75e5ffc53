#include "device/kernels/mat_vec/plan.h"

#include <algorithm>

#include "device/kernels/mat_vec/block/tile_work.h"
#include "device/kernels/weights/summation.h"

namespace unpaced::mat_vec {
namespace {

std::int32_t rounded_up(std::int32_t value, std::int32_t unit) {
  return divided_up(value, unit) * unit;
}

void put_matrices(const MatVec& mat_vec, const Build& build, Task& task) {
  const bool paired = mat_vec.end == MatVecEnd::kGlu;
  task.n_matrices = mat_vec.n_matrices;
  for (std::int32_t i = 0; i < mat_vec.n_matrices; ++i) {
    const MatVecMatrix& matrix = mat_vec.matrices[static_cast<std::size_t>(i)];
    const std::int32_t chunks = divided_up(matrix.n_rows, paired ? build.rows / 2 : build.rows);
    // Of gate and up there are chunks once.
    task.n_chunks = paired ? chunks : task.n_chunks + chunks;
    task.matrices[i] = {.weights = static_cast<const std::uint8_t*>(matrix.weights),
                        .added = mat_vec.end == MatVecEnd::kPlain ? nullptr : matrix.added,
                        .out = matrix.out,
                        .out_stride = matrix.out_stride,
                        .added_stride = matrix.added_stride,
                        .expert_bytes = matrix.expert_bytes,
                        .row_bytes = static_cast<std::int32_t>(matrix.row_bytes),
                        .n_rows = matrix.n_rows,
                        .chunks_end = task.n_chunks};
  }
  if (mat_vec.experts != nullptr) {
    task.n_experts = mat_vec.n_experts;
    task.n_chunks *= mat_vec.n_experts;
  }
}

// The part of a row that is fetched at once: whole groups of one step for each of ggml's warps, or
// of quads a step for all of them.
void put_slices(const FormatFacts& format, std::int32_t warps, const Build& build, Task& task) {
  const std::int32_t blocks = kLanes / format.threads;
  const std::int32_t group_bytes = warps * blocks * format.bytes;
  const std::int32_t n_groups = divided_up(task.n_steps, warps);
  std::int32_t groups = std::clamp(build.stage_bytes / (build.rows * group_bytes), 1, n_groups);
  if (build.held) groups = n_groups;
  task.n_slices = divided_up(n_groups, groups);
  task.slice_steps = divided_up(n_groups, task.n_slices) * warps;
  task.n_slices = divided_up(task.n_steps, task.slice_steps);
  // Whole steps: lanes without a block read what they do not use.
  const std::int32_t bytes = std::min(task.n_steps, task.slice_steps) * blocks * format.bytes;
  task.slot_bytes = rounded_up(bytes + 15, 16) + 16;
  // An odd multiple of 16: lanes that read eight rows at once meet different banks.
  if (build.tensor && task.slot_bytes / 16 % 2 == 0) task.slot_bytes += 16;
}

// The fewest threads that make the fewest turns, two weights a turn.
std::int32_t ggml_float_warps(std::int32_t n_values) {
  std::int32_t best = 1;
  for (std::int32_t warps = 2; warps <= 8; ++warps) {
    if (divided_up(n_values, 64 * warps) < divided_up(n_values, 64 * best)) best = warps;
  }
  return best;
}

// How many columns ggml's mat-vecs take before another kernel does (mmvq.cu:
// ggml_cuda_should_use_mmvq).
std::int32_t ggml_columns(WeightFormat format, const Card& card) {
  const bool k_quant = format == WeightFormat::kQ4_K || format == WeightFormat::kQ5_K ||
                       format == WeightFormat::kQ6_K;
  if (!k_quant) return kMatVecColumns;
  if (card.compute == 87) return 1;
  if (card.compute == 120)
    return format == WeightFormat::kQ4_K ? 5 : format == WeightFormat::kQ5_K ? 6 : 7;
  return kMatVecColumns;
}

}  // namespace

std::int32_t ggml_warps(const MatVec& mat_vec, const Card& card) {
  const WeightFormat format = mat_vec.matrices[0].format;
  if (!is_quantised(format)) return ggml_float_warps(mat_vec.n_values);
  const bool k_quant = format == WeightFormat::kQ4_K || format == WeightFormat::kQ5_K ||
                       format == WeightFormat::kQ6_K;
  if (mat_vec.order_columns > 1) {
    if (mat_vec.order_columns > ggml_columns(format, card)) return 0;
    return mat_vec.order_columns <= 4 ? 4 : 2;
  }
  if (card.code >= 75 && card.code < 80) return k_quant ? 2 : 4;
  // Some rows get eight warps there, by their length.
  if (card.code == 121) return 0;
  return 4;
}

std::optional<Plan> plan_mat_vec(const MatVec& mat_vec, const FormatFacts& format,
                                 std::int32_t warps, const Build& build, const Card& card,
                                 double share) {
  if (warps % format.lane_threads != 0) return std::nullopt;
  Plan plan;
  plan.warps = warps;
  Task& task = plan.task;
  task = {};
  put_matrices(mat_vec, build, task);
  const bool quantised = is_quantised(mat_vec.matrices[0].format);
  task.input = quantised ? reinterpret_cast<const std::uint8_t*>(mat_vec.input_q8)
                         : reinterpret_cast<const std::uint8_t*>(mat_vec.input);
  task.records = mat_vec.input_records;
  task.input_stride =
      mat_vec.input_stride * static_cast<std::int64_t>(quantised ? sizeof(Q8Block) : sizeof(float));
  task.experts = mat_vec.experts;
  task.waits_for_experts = mat_vec.experts != nullptr && !mat_vec.experts_are_known;
  task.n_columns = mat_vec.n_columns;
  task.n_inputs = mat_vec.expert_has_input ? mat_vec.n_experts : mat_vec.n_columns;
  task.glu_limit = mat_vec.glu_limit;
  task.next_is_ours = mat_vec.next_is_ours;
  task.adds_zero = quantised && mat_vec.order_columns == 1;
  task.end = mat_vec.end;
  task.glu = mat_vec.glu;
  task.n_blocks = mat_vec.n_values / format.values;
  task.n_steps = divided_up(task.n_blocks, kLanes / format.threads);
  put_slices(format, warps / format.lane_threads, build, task);

  const std::int32_t n_teams = build.tensor ? 1 : kTeamsMax / (build.wide ? warps : 1);
  const std::int32_t all = card.n_multiprocessors * build.blocks_per_multiprocessor;
  const auto most = std::max(1, static_cast<std::int32_t>(all * share));
  // Few rows are spread over the multiprocessors: a team each, if there are no more.
  const auto spread =
      std::min(task.n_chunks, static_cast<std::int32_t>(card.n_multiprocessors * share));
  plan.n_thread_blocks = std::min(most, std::max(divided_up(task.n_chunks, n_teams), spread));
  if (mat_vec.expert_has_input && plan.n_thread_blocks >= mat_vec.n_experts) {
    plan.n_thread_blocks -= plan.n_thread_blocks % mat_vec.n_experts;
    task.has_one_expert = true;
    task.n_inputs = 1;
  }
  const std::int32_t vectors = std::max(task.n_inputs, build.columns);
  const std::int64_t inputs =
      build.held ? 0 : std::int64_t{vectors} * task.n_steps * format.input_bytes;
  const std::int32_t sums = build.tensor ? kTileScratch
                            : build.wide || build.quads
                                ? n_teams * warps * build.rows * build.columns * 4 * kLanes
                                : 0;
  // Each block takes a kilobyte that is not its own, and has its barriers outside.
  const std::int32_t n_beside = build.blocks_per_multiprocessor * build.launches_at_once;
  const std::int64_t budget = (card.shared_bytes_max + 1024) / n_beside - 2048;
  const std::int64_t stage = std::int64_t{n_teams} * build.rows * task.slot_bytes;
  const std::int64_t stages = (budget - inputs - sums) / stage;
  if (budget < inputs + sums || stages < 2) return std::nullopt;
  const std::int32_t turns = divided_up(task.n_chunks, plan.n_thread_blocks * n_teams);
  task.n_stages = static_cast<std::int32_t>(
      std::min<std::int64_t>({stages, kStagesMax, std::max(2, turns * task.n_slices)}));
  task.inputs_at = 0;
  task.rings_at = static_cast<std::uint32_t>(inputs);
  task.sums_at = task.rings_at + static_cast<std::uint32_t>(stage * task.n_stages);
  plan.shared_bytes = static_cast<std::int32_t>(task.sums_at) + sums;
  return plan;
}

}  // namespace unpaced::mat_vec
