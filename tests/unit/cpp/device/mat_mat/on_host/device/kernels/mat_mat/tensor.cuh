// What the end of a tile takes of tensor.cuh, on the CPU.
#pragma once

#include <cstdint>

#include "host_warp.h"

namespace unpaced::mat_mat {

inline std::uint32_t count_arrival(std::uint32_t* counter) { return (*counter)++; }

}  // namespace unpaced::mat_mat
