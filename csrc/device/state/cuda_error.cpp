// What a failed CUDA call means: the end of the device, or of this call alone.
#include <cstddef>
#include <stdexcept>
#include <string>

#include "decode/engine_lost.h"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

// After a kernel that faulted, a device that fell off the bus and the like every call fails, this
// one included; no list of error codes says which errors are of that kind. It waits for no stream.
bool is_context_lost() noexcept {
  std::size_t n_free = 0;
  std::size_t n_total = 0;
  const bool is_lost = cudaMemGetInfo(&n_free, &n_total) != cudaSuccess;
  cudaGetLastError();
  return is_lost;
}

}  // namespace

void throw_cuda_error(cudaError_t status, const char* what) {
  const std::string text = std::string("CUDA: ") + what + ": " + cudaGetErrorString(status);
  cudaGetLastError();  // or the next launch that is looked at would have this error
  if (is_context_lost()) throw EngineLost(text);
  throw std::runtime_error(text);
}

}  // namespace unpaced
