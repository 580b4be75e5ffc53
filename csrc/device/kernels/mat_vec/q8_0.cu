// Mat-vecs of Q8_0 weights.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/mat_vec/tile_kernel.cuh"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced::mat_vec {

void launch_q8_0(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  if (build.tensor) return launch_tiles<Q8_0, 4>(build, plan, card, stream);
  launch_build<Q8_0, 4>(build, plan, card, stream);
}

}  // namespace unpaced::mat_vec
