// What kernels of a step do so that launches overlap, where the card can (compute 9.0): they wait
// by themselves for those ahead of them, and let those behind them start before they have ended.
#pragma once

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

}  // namespace unpaced
