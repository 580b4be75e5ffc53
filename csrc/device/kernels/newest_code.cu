// Which code a card runs, of all that this build has.
#include "device/kernels/card.h"
#include "device/kernels/ggml_device.cuh"

namespace unpaced {

// ggml's own search, over the architectures that both are compiled for.
std::int32_t newest_code(std::int32_t compute) noexcept {
  return ggml_cuda_highest_compiled_arch(10 * compute) / 10;
}

}  // namespace unpaced
