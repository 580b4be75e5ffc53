// How the card's copy engine is told where a matrix lies: a tensor map of CUDA's driver, which
// kernels take as a parameter. From compute 9.0 on.
#pragma once

#include <cstdint>

#include "device/kernels/mat_mat/task.h"

namespace unpaced::mat_mat {

// CUtensorMap.
struct alignas(64) WeightMap {
  std::uint64_t opaque[16];
};

struct WeightMaps {
  WeightMap of[kMatVecMatrices];
};

// The engine brings kTileRows pieces of rows at once, a matrix's row_pitch bytes each, from any
// multiple of 16 bytes on; behind a row's end and the last row there are zeros. Throws
// std::runtime_error.
[[nodiscard]] WeightMaps weight_maps(const Task& task);

}  // namespace unpaced::mat_mat
