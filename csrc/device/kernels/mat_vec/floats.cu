// Mat-vecs of F32, F16 and BF16 weights.
#include "device/kernels/mat_vec/kernel.cuh"
#include "device/kernels/weights/float_weights.h"

namespace unpaced::mat_vec {

void launch_f32(const Build& /*build*/, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_floats<F32>(plan, card, stream);
}

void launch_f16(const Build& /*build*/, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_floats<F16>(plan, card, stream);
}

void launch_f16_of_glu(const Build& /*build*/, const Plan& plan, const Card& card,
                       cudaStream_t stream) {
  launch_floats<F16OfGlu>(plan, card, stream);
}

void launch_bf16(const Build& /*build*/, const Plan& plan, const Card& card, cudaStream_t stream) {
  launch_floats<Bf16>(plan, card, stream);
}

}  // namespace unpaced::mat_vec
