#include "device/phases/mat_vec_choices.h"

namespace unpaced {
namespace {

// For how many there are builds: numbers between have those of the next one.
std::int32_t built_columns(std::int32_t n) { return n <= 2 ? n : n <= 4 ? 4 : 8; }

}  // namespace

std::string MatVecChoices::name(const MatVec& mat_vec) {
  std::string name = std::to_string(mat_vec.n_values) + " values, end " +
                     std::to_string(static_cast<int>(mat_vec.end)) + ", experts " +
                     std::to_string(mat_vec.n_experts) + (mat_vec.expert_has_input ? "+" : "");
  if (mat_vec.n_columns > mat_vec.order_columns)
    name += ", alone of " + std::to_string(built_columns(mat_vec.n_columns));
  if (mat_vec.order_columns > 1)
    name += ", columns " + std::to_string(built_columns(mat_vec.order_columns));
  for (std::int32_t i = 0; i < mat_vec.n_matrices; ++i) {
    const MatVecMatrix& matrix = mat_vec.matrices[static_cast<std::size_t>(i)];
    name += "; format " + std::to_string(static_cast<int>(matrix.format)) + ", " +
            std::to_string(matrix.n_rows) + " rows";
  }
  return name;
}

}  // namespace unpaced
