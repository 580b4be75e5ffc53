// What is given to a stream, as a CUDA graph instead of work.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

namespace unpaced {

// The caller destroys it. Throws std::runtime_error, and what `enqueue` throws.
[[nodiscard]] cudaGraph_t capture(cudaStream_t stream, const std::function<void()>& enqueue);

struct CapturedKernel {
  std::string name;  // as the linker has it; empty: it is not known
  dim3 grid;
};

// The kernels that `enqueue` gives the stream, which are not run. Throws as capture().
[[nodiscard]] std::vector<CapturedKernel> captured_kernels(cudaStream_t stream,
                                                           const std::function<void()>& enqueue);

}  // namespace unpaced
