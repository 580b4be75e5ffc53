// Which build of the mat-vec kernels each shape takes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "device/kernels/mat_vec.h"

namespace unpaced {

class MatVecChoices {
 public:
  // For all mat-vecs of the same formats, sizes and end, whatever their weights.
  void choose(const MatVec& mat_vec, std::int32_t variant) { chosen_[name(mat_vec)] = variant; }
  // 0 where none was chosen.
  [[nodiscard]] std::int32_t of(const MatVec& mat_vec) const {
    const auto found = chosen_.find(name(mat_vec));
    return found == chosen_.end() ? 0 : found->second;
  }

 private:
  [[nodiscard]] static std::string name(const MatVec& mat_vec);

  std::map<std::string, std::int32_t> chosen_;
};

}  // namespace unpaced
