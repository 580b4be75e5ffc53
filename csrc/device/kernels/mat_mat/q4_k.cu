// Products of Q4_K weights.
#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/k_tiles.cuh"
#include "device/kernels/mat_mat/kernel.cuh"

namespace unpaced::mat_mat {

void launch_q4_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream) {
  launch_tile<TwoGroups<4>>(task, is_gated, card, stream);
}

}  // namespace unpaced::mat_mat
