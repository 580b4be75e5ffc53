// The builds that a mat-vec may take.
#pragma once

#include <vector>

#include "device/kernels/mat_vec.h"
#include "device/kernels/mat_vec/plan.h"

namespace unpaced::mat_vec {

// Some of them may not suit it. has_quads: its formats' threads can be taken in fours
// (lane_quads.h); has_compact: its format's inputs can take less memory (compact_inputs.h).
[[nodiscard]] std::vector<Build> builds_for(const MatVec& mat_vec, bool has_quads,
                                            bool has_compact);

}  // namespace unpaced::mat_vec
