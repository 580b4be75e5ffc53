// How long a row that has a norm can be.
#include "device/kernels/rows/norm_row.h"

namespace unpaced {

std::string why_no_norm_row(std::int64_t n_values) {
  if (n_values % kQ8Values != 0) return "a row is not of whole blocks";
  if (n_values > kNormRowMax) return "a row is too long for one block of threads";
  return "";
}

}  // namespace unpaced
