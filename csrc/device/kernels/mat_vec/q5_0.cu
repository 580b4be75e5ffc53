// Mat-vecs of Q5_0 weights.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced::mat_vec {

void launch_q5_0(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_build<Q5_0, 4>(build, plan, card, stream);
}

}  // namespace unpaced::mat_vec
