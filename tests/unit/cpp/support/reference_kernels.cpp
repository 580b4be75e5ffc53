// The step's kernels on the CPU, by their arguments: what each leaves, within rounding.
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "device/kernels/experts/expert_choice.h"
#include "device/kernels/head_attention.h"
#include "device/kernels/head_rope.h"
#include "device/kernels/mat_mat.h"
#include "device/kernels/mat_vec.h"
#include "device/kernels/rows/batch_records.h"
#include "device/kernels/rows/norm_row.h"
#include "device/kernels/rows/row_rounding.h"
#include "device/kernels/rows/tensor_records.h"

namespace unpaced {
namespace {

constexpr std::size_t kProductBytes = 4096;

void round_row(const float* from, std::int64_t n, Q8Block* to) {
  for (std::int64_t block = 0; block < q8_blocks(n); ++block) {
    float values[kQ8Values] = {};
    const std::int64_t begin = block * kQ8Values;
    for (std::int64_t i = begin; i < std::min(begin + kQ8Values, n); ++i) {
      values[i - begin] = from[i];
    }
    float largest = 0;
    float sum = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value)), sum += value;
    // As ggml's CPU has it, so that the same values are rounded up.
    const float d = largest / 127.0F;
    const float inverse = largest == 0.0F ? 0.0F : 127.0F / largest;
    for (std::int32_t i = 0; i < kQ8Values; ++i) {
      to[block].values[i] = static_cast<std::int8_t>(std::nearbyint(values[i] * inverse));
    }
    to[block].scale_and_sum = static_cast<std::uint32_t>(ggml_fp32_to_fp16(d)) |
                              static_cast<std::uint32_t>(ggml_fp32_to_fp16(sum)) << 16U;
  }
}

void norm(std::vector<float>& x, const RowNorm& norm, std::int32_t row = 0) {
  const std::size_t at = static_cast<std::size_t>(row) * x.size();
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  const auto scale = static_cast<float>(
      1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(norm.epsilon)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = scale * x[i] * norm.weight[i] + (norm.added == nullptr ? 0.0F : norm.added[at + i]);
  }
  if (norm.out != nullptr) std::ranges::copy(x, norm.out + at);
}

std::vector<float> input_of(const NormRow& row, std::int32_t i) {
  const ExpertSum& sum = row.sum;
  const auto n = static_cast<std::size_t>(row.n_values);
  if (sum.experts == nullptr) {
    const float* input = row.first.input + i * row.n_values;
    return {input, input + n};
  }
  std::vector<float> x(n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(sum.n_experts); ++e)
      x[k] += sum.experts[e * n + k] * sum.weights[e];
    x[k] += sum.added[k];
  }
  return x;
}

// From a table of F16, as ggml's CPU has it.
float gelu(float x) {
  if (x <= -10.0F) return 0.0F;
  if (x >= 10.0F) return x;
  x = ggml_fp16_to_fp32(ggml_fp32_to_fp16(x));
  const float y = 0.5F * x * (1.0F + std::tanh(0.7978845608F * x * (1.0F + 0.044715F * x * x)));
  return ggml_fp16_to_fp32(ggml_fp32_to_fp16(y));
}

float activated(GluKind kind, float gate, float up, float alpha, float limit) {
  switch (kind) {
    case GluKind::kSwiglu:
      return gate / (1.0F + std::exp(-gate)) * up;
    case GluKind::kGeglu:
      return gelu(gate) * up;
    case GluKind::kSwigluOai:
      gate = std::min(gate, limit);
      up = std::clamp(up, -limit, limit);
      return gate / (1.0F + std::exp(-gate * alpha)) * (1.0F + up);
    case GluKind::kSwigluClamp:
      break;
  }
  throw std::runtime_error("no model of the tests has this activation");
}

ggml_type type_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return GGML_TYPE_F32;
    case WeightFormat::kF16:
      return GGML_TYPE_F16;
    case WeightFormat::kQ8_0:
      return GGML_TYPE_Q8_0;
    case WeightFormat::kQ4_K:
      return GGML_TYPE_Q4_K;
    case WeightFormat::kQ6_K:
      return GGML_TYPE_Q6_K;
    default:
      throw std::runtime_error("no model of the tests has this format");
  }
}

// One row of an expert's matrix, or of the only one.
std::vector<float> row_of(const MatVecMatrix& matrix, std::int64_t expert, std::int32_t row,
                          std::int32_t n_values) {
  const auto* from = static_cast<const char*>(matrix.weights) + expert * matrix.expert_bytes +
                     row * matrix.row_bytes;
  std::vector<float> values(static_cast<std::size_t>(n_values));
  if (matrix.format == WeightFormat::kF32) {
    const auto* floats = reinterpret_cast<const float*>(from);
    values.assign(floats, floats + n_values);
  } else {
    ggml_get_type_traits(type_of(matrix.format))->to_float(from, values.data(), n_values);
  }
  return values;
}

std::vector<float> input_of(const MatVec& mat_vec, std::int64_t vector) {
  std::vector<float> values(static_cast<std::size_t>(mat_vec.n_values));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (mat_vec.input_q8 == nullptr) {
      values[i] = mat_vec.input[vector * mat_vec.input_stride + static_cast<std::int64_t>(i)];
      continue;
    }
    const Q8Block& block =
        mat_vec.input_q8[vector * mat_vec.input_stride + static_cast<std::int64_t>(i / kQ8Values)];
    const float d = ggml_fp16_to_fp32(static_cast<ggml_fp16_t>(block.scale_and_sum & 0xffffU));
    values[i] = d * static_cast<float>(block.values[i % kQ8Values]);
  }
  return values;
}

struct Which {
  std::int64_t expert;
  std::int32_t column;
};

float product_of(const MatVec& mat_vec, const MatVecMatrix& matrix, const Which& which,
                 std::int32_t row, const std::vector<float>& input) {
  const std::vector<float> weights = row_of(matrix, which.expert, row, mat_vec.n_values);
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += static_cast<double>(weights[i]) * input[i];
  }
  const bool adds = mat_vec.end != MatVecEnd::kPlain && matrix.added != nullptr;
  const std::int64_t at = which.expert * matrix.n_rows + which.column * matrix.added_stride + row;
  return static_cast<float>(sum) + (adds ? matrix.added[at] : 0.0F);
}

void turn_heads(const HeadRope& rope, const RopeHeads& heads, bool turns, std::int32_t token) {
  const RopeAngles& angles = rope.angles;
  const std::int32_t n = rope.head_size;
  for (std::int32_t head = 0; head < heads.n_heads; ++head) {
    const float* from = heads.input + token * heads.token_stride + head * heads.stride;
    std::vector<float> x(from, from + n);
    if (heads.norm_weight != nullptr) {
      norm(x, {.input = nullptr, .weight = heads.norm_weight, .epsilon = heads.epsilon});
    }
    for (std::int32_t i = 0; turns && i < angles.n_dims; i += 2) {
      if (angles.ext_factor != 0.0F) throw std::runtime_error("no model of the tests has YaRN");
      const auto a = static_cast<std::size_t>(angles.neox ? i / 2 : i);
      const auto b = static_cast<std::size_t>(angles.neox ? i / 2 + angles.n_dims / 2 : i + 1);
      const float factor = angles.factors == nullptr ? 1.0F : angles.factors[i / 2];
      const float theta = angles.freq_scale * static_cast<float>(angles.position[token]) *
                          std::pow(angles.theta_scale, static_cast<float>(i) / 2.0F) / factor;
      const float cosine = std::cos(theta) * angles.attn_factor;
      const float sine = std::sin(theta) * angles.attn_factor;
      const float x0 = x[a];
      const float x1 = x[b];
      x[a] = x0 * cosine - x1 * sine;
      x[b] = x0 * sine + x1 * cosine;
    }
    for (std::int32_t i = 0; i < n; ++i) {
      const float value = x[static_cast<std::size_t>(i)];
      if (heads.out != nullptr) {
        heads.out[(token * heads.n_heads + head) * n + i] =
            heads.has_scale ? heads.scale * value + heads.scale_bias : value;
      } else {
        static_cast<ggml_fp16_t*>(
            heads.cache)[heads.row[token] * heads.cache_stride + head * n + i] =
            ggml_fp32_to_fp16(value);
      }
    }
  }
}

float half_at(const CachedHeads& heads, std::int64_t head, std::int64_t cell, std::int32_t i) {
  const auto* row = heads.data + head * heads.head_stride + cell * heads.stride;
  return ggml_fp16_to_fp32(reinterpret_cast<const ggml_fp16_t*>(row)[i]);
}

std::vector<double> attended(const HeadAttention& task, std::int32_t head) {
  const std::int32_t shared = head / task.n_sharing;
  std::vector<double> scores;
  for (std::int32_t cell = 0; cell < task.n_cells; ++cell) {
    double score = 0;
    for (std::int32_t i = 0; i < task.head_size; ++i) {
      score += static_cast<double>(task.queries[head * task.query_stride + i]) *
               half_at(task.keys, shared, cell, i);
    }
    score *= task.scale;
    if (task.cap != 0.0F) score = task.cap * std::tanh(score);
    scores.push_back(score + ggml_fp16_to_fp32(task.mask[cell]));
  }
  const double sink = task.sinks == nullptr ? -INFINITY : static_cast<double>(task.sinks[head]);
  const double top = std::max(sink, *std::ranges::max_element(scores));
  double total = std::exp(sink - top);
  std::vector<double> sums(static_cast<std::size_t>(task.head_size), 0.0);
  for (std::int32_t cell = 0; cell < task.n_cells; ++cell) {
    const double power = std::exp(scores[static_cast<std::size_t>(cell)] - top);
    total += power;
    for (std::int32_t i = 0; i < task.head_size && power != 0; ++i) {
      sums[static_cast<std::size_t>(i)] += power * half_at(task.values, shared, cell, i);
    }
  }
  for (double& sum : sums) sum /= total;
  return sums;
}

// Records are for tensor cores, which these kernels have not: how many columns they have is left in
// their place, and who multiplies looks whether it is what it was promised.
void leave_records(const RecordRows& rows, std::int32_t n_columns, std::int64_t n_values) {
  const bool is_batch = rows.n_eights > 0;
  if (is_batch && rows.n_eights != record_eights(n_columns))
    throw std::runtime_error("records of another number of columns");
  std::uint8_t* records = rows.data;
  for (std::int32_t first = 0; records != nullptr && first < n_columns; first += kRecordColumns) {
    const std::int32_t n = is_batch ? n_columns : std::min(kRecordColumns, n_columns - first);
    std::memcpy(records, &n, sizeof n);
    records += is_batch ? std::int64_t{BatchRecord::kBytes} : record_bytes(n_values);
  }
}

void look_at_columns(const MatVec& mat_vec, bool wanted) {
  std::int32_t n_columns = 0;
  if (wanted) std::memcpy(&n_columns, mat_vec.input_records, sizeof n_columns);
  if (wanted && n_columns != mat_vec.n_columns)
    throw std::runtime_error("records of another number of columns");
}

void look_at_records(const MatVec& mat_vec, const Card& card) {
  const bool wanted = mat_vec.n_columns > 4 && mat_vec.n_values <= kRecordValuesMost &&
                      takes_records(mat_vec.matrices[0].format, card);
  if ((mat_vec.input_records != nullptr) != wanted)
    throw std::runtime_error(wanted ? "nobody has made records" : "records that nobody reads");
  look_at_columns(mat_vec, wanted);
}

// Columns, or experts.
void multiply(const MatVec& mat_vec) {
  const bool chosen = mat_vec.experts != nullptr;
  for (std::int32_t k = 0; k < (chosen ? mat_vec.n_experts : mat_vec.n_columns); ++k) {
    const std::int64_t expert = chosen ? mat_vec.experts[k] : 0;
    const std::int32_t column = chosen ? 0 : k;
    const std::vector<float> input = input_of(mat_vec, mat_vec.expert_has_input || !chosen ? k : 0);
    const bool gated = mat_vec.end == MatVecEnd::kGlu;
    for (std::int32_t m = gated ? 1 : 0; m < mat_vec.n_matrices; ++m) {
      const MatVecMatrix& matrix = mat_vec.matrices[static_cast<std::size_t>(m)];
      // In a row of its own: what is added may lie there.
      std::vector<float> out;
      for (std::int32_t row = 0; row < matrix.n_rows; ++row) {
        const float up = product_of(mat_vec, matrix, {expert, column}, row, input);
        const float gate =
            gated ? product_of(mat_vec, mat_vec.matrices[0], {expert, column}, row, input) : 0.0F;
        out.push_back(gated ? activated(mat_vec.glu, gate, up, 1.702F, 7.0F) : up);
      }
      std::ranges::copy(out, matrix.out + k * matrix.out_stride);
    }
  }
}

}  // namespace

void enqueue_norm_row(const NormRow& row, const Card&, CUstream_st*) {
  leave_records(row.records, row.n_rows, row.n_values);
  for (std::int32_t i = 0; i < row.n_rows; ++i) {
    std::vector<float> x = input_of(row, i);
    if (row.sum.experts != nullptr) std::ranges::copy(x, row.sum.out);
    norm(x, row.first, i);
    if (row.second.weight != nullptr) norm(x, row.second, i);
    if (row.rounded != nullptr)
      round_row(x.data(), row.n_values, row.rounded + i * q8_blocks(row.n_values));
  }
}

void enqueue_expert_choice(const ExpertChoice& choice, const Card&, CUstream_st*) {
  const auto n = static_cast<std::size_t>(choice.n_experts);
  const std::vector<float> logits(choice.logits, choice.logits + n);
  const float best = *std::ranges::max_element(logits);
  std::vector<float> shares(n);
  for (std::size_t i = 0; i < n; ++i) shares[i] = std::exp(logits[i] - best);
  const float total = std::accumulate(shares.begin(), shares.end(), 0.0F);
  for (float& share : shares) share /= total;
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::int32_t a, std::int32_t b) {
    const float one = shares[static_cast<std::size_t>(a)];
    const float other = shares[static_cast<std::size_t>(b)];
    return one != other ? one > other : a < b;
  });
  float sum = 0;
  for (std::int32_t i = 0; i < choice.n_chosen; ++i) {
    choice.experts[i] = order[static_cast<std::size_t>(i)];
    choice.weights[i] = shares[static_cast<std::size_t>(choice.experts[i])];
    sum += choice.weights[i];
  }
  for (std::int32_t i = 0; choice.normalises && i < choice.n_chosen; ++i) {
    choice.weights[i] /= std::max(sum, choice.least_sum);
  }
}

void enqueue_row_rounding(const RowRounding& rows, const Card&, CUstream_st*) {
  leave_records(rows.records, rows.n_rows, rows.n_values);
  for (std::int32_t i = 0; i < rows.n_rows; ++i) {
    round_row(rows.input + i * rows.input_stride, rows.n_values,
              rows.rounded + i * q8_blocks(rows.n_values));
  }
}

void enqueue_gate_row(const GateRow& row, const Card&, CUstream_st*) {
  leave_records(row.records, row.n_rows, row.n_values);
  for (std::int32_t k = 0; k < row.n_rows; ++k) {
    const float* input = row.input + 2 * k * row.n_values;
    std::vector<float> x;
    for (std::int32_t i = 0; i < row.n_values; ++i) {
      x.push_back(activated(row.glu, input[i], input[row.n_values + i], row.alpha, row.limit));
    }
    if (row.out != nullptr) std::ranges::copy(x, row.out + k * row.n_values);
    if (row.rounded != nullptr)
      round_row(x.data(), row.n_values, row.rounded + k * q8_blocks(row.n_values));
  }
}

std::string why_no_mat_vec(const MatVec&, const Card&) { return ""; }

std::int32_t n_mat_vec_launches(const MatVec&, const Card&) { return 1; }

bool takes_records(WeightFormat format, const Card& card) {
  return card.code >= 90 && (format == WeightFormat::kQ4_K || format == WeightFormat::kQ8_0);
}

std::size_t mat_mat_sum_bytes(std::int32_t, const Card&) noexcept { return kProductBytes; }

std::string why_no_mat_mat(const MatVec& product, const Card&) {
  if (product.input_q8 == nullptr) return "many columns of such weights";
  return product.n_values % BatchRecord::kValues == 0 ? "" : "its rows are no whole steps";
}

void enqueue_mat_mat(const MatVec& product, const MatMatMemory& memory, const Card&, CUstream_st*) {
  look_at_columns(product, true);
  // Whatever lay there.
  std::memset(memory.sums, 0xff, kProductBytes);
  std::memset(memory.arrivals, 0, kMatMatArrivals * sizeof(std::uint32_t));
  multiply(product);
}

void enqueue_mat_vec(const MatVec& mat_vec, const Card& card, CUstream_st*) {
  look_at_records(mat_vec, card);
  multiply(mat_vec);
}

void enqueue_head_attention(const HeadAttention& task, const Card&, CUstream_st*) {
  std::vector<float> row;
  for (std::int32_t head = 0; head < task.n_heads; ++head) {
    for (const double value : attended(task, head)) row.push_back(static_cast<float>(value));
  }
  if (task.out != nullptr) std::ranges::copy(row, task.out);
  leave_records({task.records}, task.n_rows, task.n_heads * task.head_size);
  if (task.rounded != nullptr) {
    round_row(row.data(), static_cast<std::int64_t>(row.size()), task.rounded);
  }
}

void enqueue_head_rope(const HeadRope& rope, const Card&, CUstream_st*) {
  for (std::int32_t token = 0; token < rope.n_tokens; ++token) {
    turn_heads(rope, rope.query, true, token);
    turn_heads(rope, rope.key, true, token);
    turn_heads(rope, rope.value, false, token);
  }
}

}  // namespace unpaced
