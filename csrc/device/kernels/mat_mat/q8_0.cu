// Products of Q8_0 weights.
#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/kernel.cuh"
#include "device/kernels/mat_mat/q8_0_tile.cuh"

namespace unpaced::mat_mat {

void launch_q8_0(const Task& task, bool is_gated, const Card& card, CUstream_st* stream) {
  launch_tile<Q80Tile>(task, is_gated, card, stream);
}

}  // namespace unpaced::mat_mat
