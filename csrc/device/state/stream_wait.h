// A wait for the GPU that ends.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>

namespace unpaced {

// Returns when all that is in the stream now has ended. Throws EngineLost if that takes longer than
// `limit` (0: there is none), and what cuda_check() throws. spinning: so long the thread does not
// sleep.
void await_stream(cudaStream_t stream, std::chrono::microseconds limit,
                  std::chrono::microseconds spinning = std::chrono::microseconds(500));

}  // namespace unpaced
