// How a kernel of a step is launched: where the card can, before the kernels ahead of it have
// ended (a programmatic launch). Such a kernel may fetch what never changes, which is weights, and
// then waits for all that was enqueued before it.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/kernels/card.h"
#include "device/state/cuda_memory.h"

namespace unpaced {

// Every thread calls it before it reads or writes anything but weights, and before it returns: a
// kernel that does not wait has not ended when those behind it believe it has.
__device__ __forceinline__ void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once every block has called it, or ended, the next kernel's blocks may take free places. Only
// where that kernel waits before it reads: ours do. In ggml's some loads stand before the wait,
// because compilers move what they take for constant: flash_attn_ext_vec reads Q there (CUDA 13.0,
// sm_90). Its own chain has another kernel between Q and the attention.
__device__ __forceinline__ void let_later_kernels_start(bool next_is_ours) {
#if __CUDA_ARCH__ >= 900
  if (next_is_ours) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Every thread calls it behind its last write. What the next kernel reads before it waits is there
// then: it begins when all blocks have ended.
__device__ __forceinline__ void end_writes(bool next_is_ours) {
#if __CUDA_ARCH__ >= 900
  if (!next_is_ours) __threadfence();
#endif
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic
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
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  // The same of every kernel: a multiprocessor divides its memory anew only when it is empty, and
  // blocks that wait would not begin beside others. Once a process would do; it costs little.
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "cudaFuncSetAttribute");
  config.numAttrs = card.dependents_start_early && can_start_early(kernel) ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx");
}

}  // namespace unpaced
