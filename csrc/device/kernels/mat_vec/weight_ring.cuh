// How weights come into shared memory while earlier ones are multiplied: a ring of stages a team,
// each with a barrier that knows when its bytes are there.
//
// From compute 9.0 on one lane asks for a row's slice as a whole (cp.async.bulk); for one column
// this is a warp of the block that does nothing else (a producer). From 8.0 on all lanes ask for 16
// bytes each (cp.async). Before, weights are read where they lie.
//
// Copies begin and end at multiples of 16 bytes, so they may read up to 15 bytes around a slice:
// always within 16 aligned bytes of which at least one is the slice's.
#pragma once

#include <cstdint>

#include "device/kernels/mat_vec/plan.h"

namespace unpaced::mat_vec {

struct StageBarriers {
  unsigned long long of[kTeamsMax][kStagesMax];    // its bytes are there
  unsigned long long free[kTeamsMax][kStagesMax];  // nobody reads it any more; a producer's
};

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// `arrivals` make a barrier's phase complete, with all bytes that were announced.
__device__ __forceinline__ void begin_barrier(unsigned long long* barrier, int arrivals) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#endif
}

// Makes begun barriers known to bulk copies.
__device__ __forceinline__ void publish_barriers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ __forceinline__ void await_barrier(unsigned long long* barrier, std::uint32_t parity) {
#if __CUDA_ARCH__ >= 800
  std::uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#endif
  }
#endif
}

// The 16-byte lines that have a slice in them.
struct Lines {
  const std::uint8_t* begin;
  std::uint32_t bytes;
};

__device__ __forceinline__ Lines lines_of(const std::uint8_t* from, std::int32_t bytes) {
  const std::uint32_t before =
      static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from)) & 15;
  return {from - before, (before + bytes + 15) & ~15U};
}

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// So many bytes more will come.
__device__ __forceinline__ void announce(unsigned long long* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Bytes that were announced; all three are multiples of 16.
__device__ __forceinline__ void copy_bytes(const std::uint8_t* from, std::uint32_t bytes, void* to,
                                           unsigned long long* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// One lane fetches one row's slice.
__device__ __forceinline__ void fetch_row(unsigned long long* barrier, const Lines& lines,
                                          void* slot) {
  announce(barrier, lines.bytes);
  copy_bytes(lines.begin, lines.bytes, slot, barrier);
}

// Such a copy once for a whole warp, whose lanes all have the same arguments; does: whether.
__device__ __forceinline__ void copy_once(std::uint32_t does, unsigned long long begin,
                                          std::uint32_t bytes, void* slot,
                                          unsigned long long* barrier) {
  asm volatile(
      "{ .reg .pred one; elect.sync _|one, 0xffffffff; setp.ne.and.u32 one, %4, 0, one; @one "
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3]; }" ::
          "r"(shared_address(slot)),
      "l"(begin), "r"(bytes), "r"(shared_address(barrier)), "r"(does)
      : "memory");
}
#elif __CUDA_ARCH__ >= 800
// `n` threads fetch one row's slice.
__device__ __forceinline__ void fetch_row(const Lines& lines, std::uint8_t* slot, int thread,
                                          int n) {
  for (std::uint32_t at = 16 * thread; at < lines.bytes; at += 16 * n) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(slot + at)),
                 "l"(lines.begin + at)
                 : "memory");
  }
}

__device__ __forceinline__ void arrive_when_fetched(unsigned long long* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
#endif

}  // namespace unpaced::mat_vec
