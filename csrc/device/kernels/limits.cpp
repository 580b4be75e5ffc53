// What the kernels that are not mat-vecs cannot do.
#include "device/kernels/head_rope.h"
#include "device/kernels/norm_row.h"

namespace unpaced {

std::string why_no_norm_row(std::int64_t n_values) {
  if (n_values % kQ8Values != 0) return "a row is not of whole blocks";
  if (n_values > kNormRowMax) return "a row is too long for one block of threads";
  return "";
}

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

}  // namespace unpaced
