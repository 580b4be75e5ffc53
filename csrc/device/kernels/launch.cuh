// How a kernel of a step is launched: where the card can, before the kernels ahead of it have
// ended (a programmatic launch). Such a kernel may fetch what never changes, which is weights, and
// then waits for all that was enqueued before it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/kernels/card.h"
#include "device/launch/early_start.cuh"
#include "device/state/cuda_memory.h"

namespace unpaced {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
  unsigned cluster = 0;          // blocks that follow one another in x; 0: no clusters
};

// Code that was made from PTX of an older card has no griddepcontrol in it.
template <class Kernel>
bool can_start_early(Kernel kernel) {
  cudaFuncAttributes attributes = {};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90;
}

// Throws std::runtime_error.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, const Card& card,
            cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned n_attributes = 0;
  if (card.dependents_start_early && can_start_early(kernel)) {
    cudaLaunchAttribute& early = attributes[n_attributes++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 0) {
    cudaLaunchAttribute& cluster = attributes[n_attributes++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = n_attributes;
  // The same of every kernel: a multiprocessor divides its memory anew only when it is empty, and
  // blocks that wait would not begin beside others. Once a process would do; it costs little.
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "cudaFuncSetAttribute");
  cuda_check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx");
}

}  // namespace unpaced
