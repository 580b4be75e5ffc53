// Products of Q4_K weights and of Q6_K ones in one launch.
#include "device/kernels/mat_mat/formats.h"
#include "device/kernels/mat_mat/k_tiles.cuh"
#include "device/kernels/mat_mat/kernel.cuh"
#include "device/kernels/mat_mat/q6_k_tile.cuh"

namespace unpaced::mat_mat {

void launch_q4_k_and_q6_k(const Task& task, const Card& card, CUstream_st* stream) {
  launch_eights<TwoGroups<4>, Q6KTile, 1>(task, card, stream);
}

}  // namespace unpaced::mat_mat
