// Mat-vecs of Q5_K weights.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/mat_vec/tile_kernel.cuh"
#include "device/kernels/weights/k_quants.h"

namespace unpaced::mat_vec {

void launch_q5_k(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if (build.tensor) return launch_tiles<Q5K, 4>(build, plan, card, stream);
  launch_build<Q5K, 4>(build, plan, card, stream);
}

}  // namespace unpaced::mat_vec
