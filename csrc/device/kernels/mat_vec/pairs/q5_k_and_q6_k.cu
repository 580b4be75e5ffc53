// Mat-vecs of Q5_K and Q6_K weights in one launch.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/mat_vec/tile_kernel.cuh"
#include "device/kernels/weights/k_quants.h"

namespace unpaced::mat_vec {

void launch_q5_k_and_q6_k(const Build& build, const PlanPair& plans, const Card& card,
                          cudaStream_t stream) {
  if (build.tensor) return launch_tile_pair<Q5K, Q6K, 4>(plans, card, stream);
  launch_pair<Q5K, Q6K, 4>(build, plans, card, stream);
}

}  // namespace unpaced::mat_vec
