// Mat-vecs of weights that are codes of a table: IQ4_XS and MXFP4.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced::mat_vec {

void launch_iq4_xs(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_build<Iq4Xs, 4>(build, plan, card, stream);
}

void launch_mxfp4(const Build& build, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_build<Mxfp4, 4>(build, plan, card, stream);
}

}  // namespace unpaced::mat_vec
