#include "device/kernels/card.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

std::int32_t attribute(int device, cudaDeviceAttr name) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

// As ggml has it, of its own kernels.
bool programmatic_launches_are_off() {
  const char* asked = std::getenv("GGML_CUDA_PDL");
  return asked != nullptr && std::atoi(asked) == 0;
}

}  // namespace

Card find_card(int device) {
  Card card;
  card.compute = 10 * attribute(device, cudaDevAttrComputeCapabilityMajor) +
                 attribute(device, cudaDevAttrComputeCapabilityMinor);
  card.code = newest_code(card.compute);
  card.n_multiprocessors = attribute(device, cudaDevAttrMultiProcessorCount);
  card.shared_bytes_max = attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  card.dependents_start_early = card.compute >= 90 && !programmatic_launches_are_off();
  return card;
}

}  // namespace unpaced
