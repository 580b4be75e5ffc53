#include "device/phases/kernel_arguments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "device/kernels/mat_mat.h"

namespace unpaced {
namespace {

std::optional<WeightFormat> format_of(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return WeightFormat::kF32;
    case GGML_TYPE_F16:
      return WeightFormat::kF16;
    case GGML_TYPE_BF16:
      return WeightFormat::kBf16;
    case GGML_TYPE_Q4_0:
      return WeightFormat::kQ4_0;
    case GGML_TYPE_Q5_0:
      return WeightFormat::kQ5_0;
    case GGML_TYPE_Q8_0:
      return WeightFormat::kQ8_0;
    case GGML_TYPE_Q4_K:
      return WeightFormat::kQ4_K;
    case GGML_TYPE_Q5_K:
      return WeightFormat::kQ5_K;
    case GGML_TYPE_Q6_K:
      return WeightFormat::kQ6_K;
    case GGML_TYPE_IQ4_XS:
      return WeightFormat::kIq4Xs;
    case GGML_TYPE_MXFP4:
      return WeightFormat::kMxfp4;
    default:
      return {};
  }
}

GluKind glu_of(const ggml_tensor* glu) {
  switch (ggml_get_glu_op(glu)) {
    case GGML_GLU_OP_GEGLU:
      return GluKind::kGeglu;
    case GGML_GLU_OP_SWIGLU_OAI:
      return GluKind::kSwigluOai;
    case GGML_GLU_OP_SWIGLU_CLAMP:
      return GluKind::kSwigluClamp;
    default:
      return GluKind::kSwiglu;
  }
}

template <class T>
T parameter(const ggml_tensor* node, std::size_t i) {
  T value;
  std::memcpy(&value, node->op_params + i, sizeof value);
  return value;
}

MatVecMatrix matrix_of(const ProductPart& part) {
  return {.weights = part.weights->data,
          .format = format_of(part.weights->type).value(),
          .n_rows = static_cast<std::int32_t>(part.weights->ne[1]),
          .row_bytes = static_cast<std::int64_t>(part.weights->nb[1]),
          .expert_bytes = static_cast<std::int64_t>(part.weights->nb[2]),
          .added = part.added == nullptr ? nullptr : static_cast<const float*>(part.added->data),
          .out_stride = part.weights->ne[1],
          .added_stride = part.added == nullptr || part.added->ne[1] == 1 ? 0 : part.added->ne[0]};
}

MatVec common_of(const ProductPart& part) {
  MatVec mat_vec;
  mat_vec.n_values = static_cast<std::int32_t>(part.weights->ne[0]);
  mat_vec.end = part.added == nullptr ? MatVecEnd::kPlain : MatVecEnd::kAdded;
  if (part.experts != nullptr) {
    mat_vec.experts = static_cast<const std::int32_t*>(part.experts->data);
    mat_vec.n_experts = static_cast<std::int32_t>(part.experts->ne[0]);
    mat_vec.expert_has_input = part.input->ne[1] > 1;
  } else {
    mat_vec.n_columns = static_cast<std::int32_t>(part.input->ne[1]);
    mat_vec.order_columns = part.order_columns;
  }
  return mat_vec;
}

// A norm's parameters and a head's.
std::string why_unlike(const RopePart& a, const RopePart& b) {
  // n_dims, mode, original context, frequencies, yarn; the offset.
  if (std::memcmp(a.rope->op_params + 1, b.rope->op_params + 1, 10 * sizeof(std::int32_t)) != 0 ||
      a.rope->src[1] != b.rope->src[1] || a.rope->src[2] != b.rope->src[2]) {
    return "Q and K have different positions";
  }
  if (a.rope->ne[0] != b.rope->ne[0]) return "Q and K have different heads";
  return "";
}

std::string why_not(const RopePart& part) {
  const auto mode = parameter<std::int32_t>(part.rope, 2);
  if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX) {
    return "positions are of another kind";
  }
  if (parameter<std::int32_t>(part.rope, 15) != 0) return "heads are turned from an offset on";
  if (part.rope->src[1]->type != GGML_TYPE_I32 || part.rope->type != GGML_TYPE_F32 ||
      part.input->type != GGML_TYPE_F32 || part.input->nb[0] != sizeof(float) ||
      !ggml_is_contiguous(part.rope)) {
    return "heads are of another layout";
  }
  return "";
}

RopeHeads heads_of(const RopePart& part) {
  RopeHeads heads;
  heads.stride = static_cast<std::int64_t>(part.input->nb[1] / sizeof(float));
  heads.token_stride = static_cast<std::int64_t>(part.input->nb[2] / sizeof(float));
  heads.n_heads = static_cast<std::int32_t>(part.rope->ne[1]);
  if (part.norm != nullptr) {
    heads.norm_weight = static_cast<const float*>(part.weight->data);
    heads.epsilon = parameter<float>(part.norm, 0);
  }
  if (part.scale != nullptr) {
    heads.has_scale = true;
    heads.scale = parameter<float>(part.scale, 0);
    heads.scale_bias = parameter<float>(part.scale, 1);
  }
  return heads;
}

void write_to(RopeHeads& heads, const CacheWritePart& part) {
  heads.cache = part.out->data;
  heads.cache_stride = static_cast<std::int64_t>(part.out->nb[1] / ggml_type_size(part.out->type));
  heads.row = static_cast<const std::int64_t*>(part.rows->data);
}

RopeAngles angles_of(const ggml_tensor* rope) {
  RopeAngles angles;
  angles.position = static_cast<const std::int32_t*>(rope->src[1]->data);
  angles.factors =
      rope->src[2] == nullptr ? nullptr : static_cast<const float*>(rope->src[2]->data);
  angles.n_dims = parameter<std::int32_t>(rope, 1);
  angles.neox = parameter<std::int32_t>(rope, 2) == GGML_ROPE_TYPE_NEOX;
  const auto base = parameter<float>(rope, 5);
  angles.theta_scale = std::pow(base, -2.0F / static_cast<float>(angles.n_dims));
  angles.freq_scale = parameter<float>(rope, 6);
  angles.ext_factor = parameter<float>(rope, 7);
  angles.attn_factor = parameter<float>(rope, 8);
  float corr[2];
  ggml_rope_yarn_corr_dims(angles.n_dims, parameter<std::int32_t>(rope, 4), base,
                           parameter<float>(rope, 9), parameter<float>(rope, 10), corr);
  angles.corr_low = corr[0];
  angles.corr_high = corr[1];
  return angles;
}

}  // namespace

std::string why_no_arguments(std::span<const ProductPart> parts) {
  if (parts.size() > kMatVecMatrices) return "more matrices than a launch takes";
  for (const ProductPart& part : parts) {
    if (!format_of(part.weights->type)) {
      return std::string("weights are ") + ggml_type_name(part.weights->type);
    }
    // Sums in F16, as ggml's kernel has them unless it is told (gate and up: float_weights.h).
    if (part.weights->type == GGML_TYPE_F16 &&
        parameter<std::int32_t>(part.product, 0) != GGML_PREC_DEFAULT) {
      return "sums in F32 are asked for";
    }
    if ((part.added == nullptr) != (parts.front().added == nullptr)) {
      return "only some have a bias";
    }
    if (takes_rounded(part.weights) != takes_rounded(parts.front().weights)) {
      return "only some take a rounded row";
    }
  }
  return "";
}

MatVec mat_vec_of(std::span<const ProductPart> parts) {
  MatVec mat_vec = common_of(parts.front());
  mat_vec.n_matrices = static_cast<std::int32_t>(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) mat_vec.matrices[i] = matrix_of(parts[i]);
  return mat_vec;
}

MatVec mat_vec_of(const GatedPart& part) {
  MatVec mat_vec = common_of(part.up);
  mat_vec.n_matrices = 2;
  mat_vec.matrices[0] = matrix_of(part.gate);
  mat_vec.matrices[1] = matrix_of(part.up);
  mat_vec.end = MatVecEnd::kGlu;
  mat_vec.glu = glu_of(part.out);
  mat_vec.glu_limit = parameter<float>(part.out, 3);
  return mat_vec;
}

bool takes_records(const ProductPart& part, const Card& card) {
  const auto format = format_of(part.weights->type);
  return format && part.experts == nullptr && takes_records(*format, card);
}

std::size_t product_bytes(std::span<const StepPhase> phases, const Card& card) {
  std::int32_t n_columns = 0;
  for (const StepPhase& phase : phases) {
    for (const PhaseLaunch& launch : phase.launches) {
      if (const auto* products = std::get_if<ProductLaunch>(&launch))
        n_columns = std::max(n_columns, products->parts.front().order_columns);
      if (const auto* gated = std::get_if<GatedLaunch>(&launch))
        n_columns = std::max(n_columns, gated->part.up.order_columns);
    }
  }
  return n_columns > kMatVecColumns ? mat_mat_sum_bytes(n_columns, card) : 0;
}

GateRow gate_row_of(const ActivationPart& part) {
  GateRow row;
  row.n_values = static_cast<std::int32_t>(part.out->ne[0]);
  row.n_rows = static_cast<std::int32_t>(part.out->ne[1]);
  row.glu = glu_of(part.out);
  row.alpha = parameter<float>(part.out, 2);
  row.limit = parameter<float>(part.out, 3);
  return row;
}

HeadRoles roles_of(const RopeLaunch& launch) {
  HeadRoles roles;
  for (const CacheWritePart& write : launch.writes) {
    const ggml_tensor* source = origin(write.input);
    bool turned = false;
    for (const RopePart& rope : launch.ropes) {
      if (rope.out != source) continue;
      roles.key = &rope;
      turned = true;
    }
    (turned ? roles.key_row : roles.value_row) = &write;
  }
  for (const RopePart& rope : launch.ropes) {
    if (&rope != roles.key) roles.query = &rope;
  }
  return roles;
}

std::string why_no_arguments(const RopeLaunch& launch) {
  const HeadRoles roles = roles_of(launch);
  if (launch.ropes.size() != 2 || roles.query == nullptr || roles.key == nullptr ||
      roles.key_row == nullptr || roles.value_row == nullptr) {
    return "heads do not go where attention's go";
  }
  for (const RopePart* part : {roles.query, roles.key}) {
    if (std::string why = why_not(*part); !why.empty()) return why;
  }
  if (std::string why = why_unlike(*roles.query, *roles.key); !why.empty()) return why;
  const std::int64_t head_size = roles.key->rope->ne[0];
  for (const CacheWritePart* write : {roles.key_row, roles.value_row}) {
    if (write->out->type != GGML_TYPE_F16) {
      return std::string("the cache is ") + ggml_type_name(write->out->type);
    }
    if (write->input->ne[0] % head_size != 0) return "V has other heads than K";
  }
  return why_no_head_rope(head_rope_of(roles));
}

HeadRope head_rope_of(const HeadRoles& roles) {
  HeadRope rope;
  rope.angles = angles_of(roles.query->rope);
  rope.head_size = static_cast<std::int32_t>(roles.query->rope->ne[0]);
  rope.query = heads_of(*roles.query);
  rope.key = heads_of(*roles.key);
  write_to(rope.key, *roles.key_row);
  rope.n_tokens = static_cast<std::int32_t>(roles.query->rope->ne[2]);
  // Rows in pieces of a head's size.
  rope.value.stride = rope.head_size;
  rope.value.token_stride =
      static_cast<std::int64_t>(roles.value_row->input->nb[1] / sizeof(float));
  rope.value.n_heads = static_cast<std::int32_t>(roles.value_row->input->ne[0]) / rope.head_size;
  write_to(rope.value, *roles.value_row);
  return rope;
}

namespace {

CachedHeads cached_heads(const ggml_tensor* view) {
  return {.data = static_cast<const std::uint8_t*>(view->data),
          .stride = static_cast<std::int64_t>(view->nb[1]),
          .head_stride = static_cast<std::int64_t>(view->nb[2]),
          .row_stride = static_cast<std::int64_t>(view->nb[3])};
}

}  // namespace

std::string why_no_arguments(const AttentionPart& part) {
  const ggml_tensor* query = part.out->src[0];
  const ggml_tensor* keys = part.out->src[1];
  const ggml_tensor* values = part.out->src[2];
  const ggml_tensor* mask = part.out->src[3];
  for (const ggml_tensor* cached : {keys, values}) {
    if (cached->type != GGML_TYPE_F16) {
      return std::string("attention over a cache of ") + ggml_type_name(cached->type);
    }
  }
  if (query->type != GGML_TYPE_F32 || query->ne[1] != 1 || query->ne[3] > kRowsAsAlone) {
    return "attention of several queries";
  }
  if (mask == nullptr || mask->type != GGML_TYPE_F16 || mask->ne[2] != 1 ||
      mask->ne[3] != query->ne[3]) {
    return "attention with another mask";
  }
  if (origin(mask)->op != GGML_OP_NONE) return "attention with a mask that the step computes";
  if (parameter<float>(part.out, 1) != 0.0F) return "attention with a bias of distance";
  if (values->ne[0] != keys->ne[0] || query->nb[2] % 16 != 0 || query->nb[0] != sizeof(float) ||
      keys->nb[0] != 2 || values->nb[0] != 2) {
    return "attention to values of another size";
  }
  return why_no_head_attention(head_attention_of(part));
}

HeadAttention head_attention_of(const AttentionPart& part) {
  const ggml_tensor* query = part.out->src[0];
  const ggml_tensor* keys = part.out->src[1];
  const ggml_tensor* sinks = part.out->src[4];
  HeadAttention attention;
  attention.query_stride = static_cast<std::int64_t>(query->nb[2] / sizeof(float));
  attention.keys = cached_heads(keys);
  attention.values = cached_heads(part.out->src[2]);
  attention.mask = static_cast<const std::uint16_t*>(part.out->src[3]->data);
  attention.n_rows = static_cast<std::int32_t>(query->ne[3]);
  attention.query_row_stride = static_cast<std::int64_t>(query->nb[3] / sizeof(float));
  attention.mask_row_stride =
      static_cast<std::int64_t>(part.out->src[3]->nb[3] / sizeof(std::uint16_t));
  attention.rounded_row_stride = q8_blocks(query->ne[0] * query->ne[2]);
  attention.sinks = sinks == nullptr ? nullptr : static_cast<const float*>(sinks->data);
  attention.head_size = static_cast<std::int32_t>(query->ne[0]);
  attention.n_heads = static_cast<std::int32_t>(query->ne[2]);
  attention.n_sharing = static_cast<std::int32_t>(query->ne[2] / keys->ne[2]);
  attention.n_cells = static_cast<std::int32_t>(keys->ne[1]);
  attention.scale = parameter<float>(part.out, 0);
  attention.cap = parameter<float>(part.out, 2);
  if (attention.cap != 0.0F) attention.scale /= attention.cap;
  return attention;
}

}  // namespace unpaced
