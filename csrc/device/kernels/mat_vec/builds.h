// The builds that a mat-vec may take.
#pragma once

#include <vector>

#include "device/kernels/mat_vec.h"
#include "device/kernels/mat_vec/plan.h"

namespace unpaced::mat_vec {

// What a mat-vec's formats can do on its card.
struct Ways {
  bool quads = false;    // their threads can be taken in fours (lane_quads.h)
  bool compact = false;  // inputs can take less memory (compact_inputs.h)
  bool tensor = false;   // tensor cores can multiply (block/tile_work.h)
};

// Some of them may not suit it.
[[nodiscard]] std::vector<Build> builds_for(const MatVec& mat_vec, const Ways& ways);

}  // namespace unpaced::mat_vec
