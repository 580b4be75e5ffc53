// What the kernels of heads cannot do.
#include "device/kernels/head_attention.h"
#include "device/kernels/head_rope.h"

namespace unpaced {

std::string why_no_head_rope(const HeadRope& rope) {
  if (rope.head_size % 2 != 0 || rope.angles.n_dims % 2 != 0) return "a head is of an odd size";
  if ((rope.query.norm_weight == nullptr) != (rope.key.norm_weight == nullptr)) {
    return "only one of Q and K has a norm";
  }
  // ggml has more threads for those.
  if (rope.query.norm_weight != nullptr && rope.head_size >= 1024) return "a head is too large";
  if (rope.key.has_scale) return "K is scaled";
  return "";
}

std::string why_no_head_attention(const HeadAttention& attention) {
  const std::int32_t size = attention.head_size;
  if (size != 64 && size != 128 && size != 256) return "heads are of another size";
  if (attention.cap != 0 && size == 64) return "scores of small heads are capped";
  if (attention.n_heads > kAttentionHeadsMost) return "there are too many heads";
  if (attention.n_rows == 1 && attention.n_cells > kAttentionCellsMost) {
    return "ggml's attention is faster in large windows";
  }
  if (attention.n_cells % kAttentionCells != 0) return "cells are not of whole blocks";
  const auto is_aligned = [](const CachedHeads& heads) {
    return reinterpret_cast<std::uintptr_t>(heads.data) % 16 == 0 && heads.stride % 16 == 0 &&
           heads.head_stride % 16 == 0;
  };
  if (!is_aligned(attention.keys) || !is_aligned(attention.values)) {
    return "the cache's rows are not aligned";
  }
  return "";
}

}  // namespace unpaced
