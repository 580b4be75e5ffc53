// Products of Q6_K weights.
#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/kernel.cuh"
#include "device/kernels/mat_mat/q6_k_tile.cuh"

namespace unpaced::mat_mat {

void launch_q6_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream) {
  launch_tile<Q6KTile>(task, is_gated, card, stream);
}

}  // namespace unpaced::mat_mat
