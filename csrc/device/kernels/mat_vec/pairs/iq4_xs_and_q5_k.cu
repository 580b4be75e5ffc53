// Mat-vecs of IQ4_XS and Q5_K weights in one launch.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/weights/k_quants.h"
#include "device/kernels/weights/small_blocks.h"

namespace unpaced::mat_vec {

void launch_iq4_xs_and_q5_k(const Build& build, const PlanPair& plans, const Card& card,
                            cudaStream_t stream) {
  launch_pair<Iq4Xs, Q5K, 4>(build, plans, card, stream);
}

}  // namespace unpaced::mat_vec
