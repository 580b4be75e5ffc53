// Which mat-vecs are ours, how each is built, and its launch.
#include "device/kernels/mat_vec.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/kernels/mat_vec/builds.h"
#include "device/kernels/mat_vec/formats.h"
#include "device/kernels/mat_vec/plan.h"
#include "device/kernels/rows/record_columns.h"
#include "device/kernels/weights/float_weights.h"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/lane_quads.h"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced {
namespace {

using mat_vec::Build;
using mat_vec::Plan;

struct Format {
  WeightFormat name;
  mat_vec::FormatFacts facts;
  mat_vec::LaunchFormat launch;
  std::optional<mat_vec::FormatFacts> quads = {};
  std::optional<mat_vec::FormatFacts> compact = {};
  std::optional<mat_vec::FormatFacts> tensor = {};
  std::optional<mat_vec::FormatFacts> compact_tensor = {};

  [[nodiscard]] const mat_vec::FormatFacts& facts_for(const Build& build) const {
    if (build.tensor) return build.compact ? *compact_tensor : *tensor;
    return build.quads ? *quads : build.compact ? *compact : facts;
  }
};

template <class Kind>
constexpr Format with_all_ways(WeightFormat name, mat_vec::LaunchFormat launch) {
  return {name,
          mat_vec::facts_of<Kind>(),
          launch,
          mat_vec::facts_of<mat_vec::Quad<Kind>>(),
          mat_vec::facts_of<mat_vec::Compact<Kind>>(),
          mat_vec::tensor_facts_of<Kind, HalfRecord>(),
          mat_vec::tensor_facts_of<Kind, ByteRecord>()};
}

constexpr std::array<Format, 11> kFormats = {{
    with_all_ways<mat_vec::Q4K>(WeightFormat::kQ4_K, mat_vec::launch_q4_k),
    with_all_ways<mat_vec::Q5K>(WeightFormat::kQ5_K, mat_vec::launch_q5_k),
    with_all_ways<mat_vec::Q6K>(WeightFormat::kQ6_K, mat_vec::launch_q6_k),
    with_all_ways<mat_vec::Q8_0>(WeightFormat::kQ8_0, mat_vec::launch_q8_0),
    {WeightFormat::kQ4_0, mat_vec::facts_of<mat_vec::Q4_0>(), mat_vec::launch_q4_0},
    {WeightFormat::kQ5_0, mat_vec::facts_of<mat_vec::Q5_0>(), mat_vec::launch_q5_0},
    {WeightFormat::kIq4Xs, mat_vec::facts_of<mat_vec::Iq4Xs>(), mat_vec::launch_iq4_xs},
    {WeightFormat::kMxfp4, mat_vec::facts_of<mat_vec::Mxfp4>(), mat_vec::launch_mxfp4},
    {WeightFormat::kF32, mat_vec::facts_of<mat_vec::F32>(), mat_vec::launch_f32},
    {WeightFormat::kF16, mat_vec::facts_of<mat_vec::F16>(), mat_vec::launch_f16},
    {WeightFormat::kBf16, mat_vec::facts_of<mat_vec::Bf16>(), mat_vec::launch_bf16},
}};

constexpr Format kF16OfGlu = {WeightFormat::kF16, mat_vec::facts_of<mat_vec::F16OfGlu>(),
                              mat_vec::launch_f16_of_glu};

struct FormatPair {
  WeightFormat first;
  WeightFormat second;
  mat_vec::LaunchPair launch;
};

constexpr std::array<FormatPair, 3> kPairs = {{
    {WeightFormat::kQ4_K, WeightFormat::kQ6_K, mat_vec::launch_q4_k_and_q6_k},
    {WeightFormat::kQ5_K, WeightFormat::kQ6_K, mat_vec::launch_q5_k_and_q6_k},
    {WeightFormat::kIq4Xs, WeightFormat::kQ5_K, mat_vec::launch_iq4_xs_and_q5_k},
}};

// What the kernels of quantised weights are built for: ggml's warps for one to four columns, and
// for five to eight.
constexpr std::int32_t kWarps = 4;
constexpr std::int32_t kFewerWarps = 2;

// ggml's block of threads computes so many rows where they are short, and stores those behind an
// expert's last one too: they are the next expert's first ones, or lie behind the result (mmvq.cu:
// mul_mat_vec_q compares a row with stride_col_dst, which is all experts' rows). Which value stays
// there is chance. No known model has such experts.
constexpr std::int32_t kExpertRows = kWarps;

bool is_quantised(const Format& format) { return mat_vec::is_quantised(format.name); }

// How weights are summed can depend on what becomes of the sums.
const Format* find_format(WeightFormat name, MatVecEnd end) {
  if (name == WeightFormat::kF16 && end == MatVecEnd::kGlu) return &kF16OfGlu;
  const auto* found = std::ranges::find(kFormats, name, &Format::name);
  return found == kFormats.end() ? nullptr : found;
}

std::span<const MatVecMatrix> matrices_of(const MatVec& mat_vec) {
  return std::span(mat_vec.matrices).first(static_cast<std::size_t>(mat_vec.n_matrices));
}

bool is_multiple(const void* pointer, std::int64_t stride, std::int64_t expert_stride,
                 std::int32_t unit) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(unit) == 0 &&
         stride % unit == 0 && expert_stride % unit == 0;
}

// Its bits are those of several columns.
bool has_order(const MatVec& mat_vec) { return mat_vec.order_columns > 1; }

std::string why_no_matrix(const MatVecMatrix& matrix, const MatVec& mat_vec, const Format& format,
                          const Card& card) {
  if (matrix.n_rows <= 0) return "a matrix has no rows";
  if (mat_vec.n_values <= 0 || mat_vec.n_values % format.facts.values != 0)
    return "its rows are no whole blocks of weights";
  if (!is_multiple(matrix.weights, matrix.row_bytes, matrix.expert_bytes, format.facts.alignment))
    return "its weights are not aligned";
  const std::int32_t warps = mat_vec::ggml_warps(mat_vec, card);
  if (is_quantised(format) && warps != kWarps && (warps != kFewerWarps || !has_order(mat_vec)))
    return "ggml sums rows in another order on this card";
  return "";
}

std::string why_no_end(const MatVec& mat_vec) {
  const bool paired = mat_vec.end == MatVecEnd::kGlu;
  const MatVecMatrix &gate = mat_vec.matrices[0], &up = mat_vec.matrices[1];
  if (paired && (mat_vec.n_matrices != 2 || gate.n_rows != up.n_rows || gate.format != up.format))
    return "gate and up are not two matrices of one shape";
  if (mat_vec.experts != nullptr && (mat_vec.n_columns != 1 || has_order(mat_vec)))
    return "experts have one column";
  if (mat_vec.experts != nullptr && mat_vec.n_matrices != (paired ? 2 : 1))
    return "experts have one product";
  if (mat_vec.experts != nullptr && gate.n_rows % kExpertRows != 0)
    return "its experts' rows do not come in fours";
  return "";
}

// A product's matrices by format, the first one's of a pair first. None: no kernel has them.
struct Parts {
  std::vector<MatVec> each;
  std::vector<const Format*> formats;
  mat_vec::LaunchPair launch_pair = nullptr;
};

// The matrices of one format.
MatVec part_of(const MatVec& mat_vec, WeightFormat format) {
  MatVec part = mat_vec;
  part.n_matrices = 0;
  for (const MatVecMatrix& matrix : matrices_of(mat_vec)) {
    if (matrix.format == format)
      part.matrices[static_cast<std::size_t>(part.n_matrices++)] = matrix;
  }
  return part;
}

Parts parts_of(const MatVec& mat_vec) {
  Parts parts;
  const auto add = [&](WeightFormat format) {
    parts.each.push_back(part_of(mat_vec, format));
    parts.formats.push_back(find_format(format, mat_vec.end));
  };
  const WeightFormat one = mat_vec.matrices[0].format;
  const MatVec same = part_of(mat_vec, one);
  if (same.n_matrices == mat_vec.n_matrices) {
    if (find_format(one, mat_vec.end) != nullptr) add(one);
    return parts;
  }
  for (const FormatPair& pair : kPairs) {
    const std::int32_t n = part_of(mat_vec, pair.first).n_matrices;
    if (n == 0 || n + part_of(mat_vec, pair.second).n_matrices != mat_vec.n_matrices) continue;
    add(pair.first);
    add(pair.second);
    parts.launch_pair = pair.launch;
    break;
  }
  return parts;
}

double n_bytes(const MatVec& mat_vec) {
  double n = 0;
  for (const MatVecMatrix& m : matrices_of(mat_vec))
    n += static_cast<double>(m.n_rows) * static_cast<double>(m.row_bytes);
  return n;
}

struct Variant {
  Build build;
  std::vector<Plan> plans;  // of the parts
};

// ggml has four warps, and these formats' threads can be taken in fours.
bool has_quads(const MatVec& mat_vec, const Parts& parts, const Card& card) {
  return mat_vec::ggml_warps(mat_vec, card) == mat_vec::kQuad &&
         std::ranges::all_of(parts.formats, [](const Format* f) { return f->quads.has_value(); });
}

bool has_tensor(const Format& format, const Card& card) {
  return format.tensor.has_value() && card.code >= 90;
}

// Columns' blocks are fetched as they lie, sixteen bytes at a time. Two formats in one launch have
// no kernel for records of bytes.
bool has_tensor(const MatVec& mat_vec, const Parts& parts, const Card& card) {
  if (parts.each.size() > 1 && has_byte_records(mat_vec.n_values)) return false;
  return mat_vec.input_stride * std::int64_t{sizeof(Q8Block)} % 16 == 0 &&
         std::ranges::all_of(parts.formats, [&](const Format* f) { return has_tensor(*f, card); });
}

bool suits(const Build& build, const MatVec& mat_vec, const Parts& parts, const Card& card) {
  if (parts.each.size() > 1 && build.columns == 1 && build.rows != 2) return false;
  // Up and gate are a pair of rows.
  if (build.rows == 1 && mat_vec.end == MatVecEnd::kGlu) return false;
  if (build.producer && !card.dependents_start_early) return false;
  return !build.held || (mat_vec.n_values <= mat_vec::kHeldValues && !mat_vec.expert_has_input);
}

// The one to take unmeasured; of several columns the first. Four rows share a lane's inputs, so
// they need the fewest instructions, if there are enough of them for a block on nearly every
// multiprocessor. Where a second round of blocks would be short, one block each leaves the next
// launch its room.
std::vector<Variant>::iterator preferred(std::vector<Variant>& variants, const Card& card) {
  const auto find = [&](std::int32_t blocks) {
    return std::ranges::find_if(variants, [&](const Variant& v) {
      return v.build.columns == 1 && v.build.rows == 4 &&
             v.build.blocks_per_multiprocessor == blocks;
    });
  };
  const auto four = find(2);
  if (four == variants.end() || four->plans.size() > 1) return variants.begin();
  // All of whose teams have work.
  const std::int32_t n_blocks =
      mat_vec::divided_up(four->plans.front().task.n_chunks, mat_vec::kTeamsMax);
  const std::int32_t n = card.n_multiprocessors;
  if (10 * n_blocks < 9 * n) return variants.begin();
  const auto beside = find(1);
  return n < n_blocks && n_blocks < 2 * n && beside != variants.end() ? beside : four;
}

// What can be launched, in the order of preference. Of two parts each has blocks of threads by the
// bytes that it reads.
std::vector<Variant> variants_of(const MatVec& mat_vec, const Parts& parts, const Card& card) {
  std::vector<Variant> variants;
  if (parts.each.empty()) return variants;
  // Rows so long that inputs must be compact have one format, in every model.
  const mat_vec::Ways ways = {
      .quads = has_quads(mat_vec, parts, card),
      .compact = parts.formats.size() == 1 && parts.formats.front()->compact.has_value(),
      .tensor = has_tensor(mat_vec, parts, card)};
  for (const Build& build : mat_vec::builds_for(mat_vec, ways)) {
    if (!suits(build, mat_vec, parts, card)) continue;
    Variant variant{build, {}};
    for (std::size_t i = 0; i < parts.each.size(); ++i) {
      const MatVec& part = parts.each[i];
      const Format& format = *parts.formats[i];
      const auto plan =
          mat_vec::plan_mat_vec(part, format.facts_for(build), mat_vec::ggml_warps(part, card),
                                build, card, n_bytes(part) / n_bytes(mat_vec));
      if (plan) variant.plans.push_back(*plan);
    }
    if (variant.plans.size() == parts.each.size()) variants.push_back(std::move(variant));
  }
  const auto first = preferred(variants, card);
  std::rotate(variants.begin(), first, first == variants.end() ? first : std::next(first));
  return variants;
}

// Several long inputs: half of the columns after the other.
std::int32_t half_of(const MatVec& mat_vec) {
  return mat_vec.n_columns > 4 ? 4 : mat_vec.n_columns > 2 ? 2 : 1;
}

}  // namespace

std::string why_no_mat_vec(const MatVec& mat_vec, const Card& card) {
  const Parts parts = parts_of(mat_vec);
  if (parts.each.empty()) return "no kernel of ours has these formats";
  const bool quantised = is_quantised(*parts.formats.front());
  if ((mat_vec.input_q8 != nullptr) != quantised) return "its input is not of the weights' kind";
  if (!quantised && (mat_vec.n_columns > 1 || has_order(mat_vec)))
    return "it has several columns of floats";
  if (!quantised && mat_vec.experts != nullptr) return "its experts are not quantised";
  if (mat_vec.n_columns < 1 || mat_vec.n_columns > kMatVecColumns || mat_vec.order_columns < 1 ||
      mat_vec.order_columns > kMatVecColumns)
    return "it has too many columns";
  for (std::size_t i = 0; i < parts.each.size(); ++i) {
    const MatVec& part = parts.each[i];
    for (const MatVecMatrix& matrix : matrices_of(part)) {
      std::string why = why_no_matrix(matrix, part, *parts.formats[i], card);
      if (!why.empty()) return why;
    }
  }
  if (std::string why = why_no_end(mat_vec); !why.empty()) return why;
  const MatVec column = columns_of(mat_vec, 0, 1);
  if (variants_of(column, parts_of(column), card).empty())
    return "its input does not fit into the card's shared memory";
  return "";
}

std::int32_t n_mat_vec_launches(const MatVec& mat_vec, const Card& card) {
  const Parts parts = parts_of(mat_vec);
  if (mat_vec.n_columns == 1 || !variants_of(mat_vec, parts, card).empty()) return 1;
  const std::int32_t half = half_of(mat_vec);
  return n_mat_vec_launches(columns_of(mat_vec, 0, half), card) +
         n_mat_vec_launches(columns_of(mat_vec, half, mat_vec.n_columns - half), card);
}

bool takes_records(WeightFormat format, const Card& card) {
  const Format* found = find_format(format, MatVecEnd::kPlain);
  return found != nullptr && has_tensor(*found, card);
}

std::int32_t n_mat_vec_variants(const MatVec& mat_vec, const Card& card) {
  const Parts parts = parts_of(mat_vec);
  if (parts.each.empty()) return 0;
  // Columns that are divided among launches have one way.
  return std::max(static_cast<std::int32_t>(variants_of(mat_vec, parts, card).size()), 1);
}

void enqueue_mat_vec(const MatVec& mat_vec, const Card& card, CUstream_st* stream) {
  const Parts parts = parts_of(mat_vec);
  if (parts.each.empty()) throw std::runtime_error("no mat-vec kernel for these formats");
  const std::vector<Variant> variants = variants_of(mat_vec, parts, card);
  if (variants.empty()) {
    if (mat_vec.n_columns == 1) throw std::runtime_error("a mat-vec's input is too long");
    const std::int32_t half = half_of(mat_vec);
    enqueue_mat_vec(columns_of(mat_vec, 0, half), card, stream);
    enqueue_mat_vec(columns_of(mat_vec, half, mat_vec.n_columns - half), card, stream);
    return;
  }
  const auto asked = static_cast<std::size_t>(mat_vec.variant);
  const Variant& variant = variants[asked < variants.size() ? asked : 0];
  if (parts.launch_pair != nullptr) {
    parts.launch_pair(variant.build, {variant.plans[0], variant.plans[1]}, card, stream);
  } else {
    parts.formats.front()->launch(variant.build, variant.plans.front(), card, stream);
  }
}

}  // namespace unpaced
