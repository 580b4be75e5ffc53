// Blocks of a cluster in one another's shared memory, from compute 9.0 on: who sends there tells a
// barrier of the receiver's, which knows how many bytes it waits for.
#pragma once

#include <cstdint>

namespace unpaced {

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ std::uint32_t address_of(const void* own) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(own));
}
// Of the same variable of the cluster's block `rank`.
__device__ __forceinline__ std::uint32_t address_in(unsigned rank, const void* own) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_of(own)), "r"(rank));
  return there;
}

// One thread's; the others of the cluster may send once all have met (arrive_in_cluster()).
__device__ __forceinline__ void begin_byte_barrier(unsigned long long* barrier, int bytes) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address_of(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address_of(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void await_bytes(unsigned long long* barrier) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(address_of(barrier))
        : "memory");
  }
}

// All threads', whole warps at a time.
__device__ __forceinline__ void arrive_in_cluster() {
  __syncwarp();  // the cluster's barrier takes a warp's arrival for all its threads'
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// All blocks have begun, and their barriers.
__device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Addresses of one block's memory.
__device__ __forceinline__ void send(std::uint32_t to, float value, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send(std::uint32_t to, float2 values, std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "r"(__float_as_uint(values.x)), "r"(__float_as_uint(values.y)), "r"(barrier)
      : "memory");
}

#endif

}  // namespace unpaced
