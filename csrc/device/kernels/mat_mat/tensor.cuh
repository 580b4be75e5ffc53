// Tensor cores and copies as the products use them: instructions of compute 8.0 and later.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace unpaced::mat_mat {

// Integer sums begin as the bits of 1.5 * 2^23, so that they are the float of that plus the sum.
inline constexpr std::int32_t kFloatBits = 0x4b400000;
inline constexpr float kFloatBase = 12582912.0f;

// 16 rows by 8 columns by 32 values. Of lane 4 * g + t: `a` has words t of rows g and g + 8, then
// words t + 4 of both; `b` has words t and t + 4 of column g; `c` has rows g and g + 8 of columns
// 2 * t and 2 * t + 1.
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], uint2 b) {
  std::int32_t r[4];
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(kFloatBits));
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = __int_as_float(r[i]);
}

__device__ __forceinline__ void multiply_signed(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                                                uint2 b) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y), "r"(0));
}

// 16 values: word t of each row and column.
__device__ __forceinline__ void multiply_half(std::int32_t (&c)[4], std::uint32_t a0,
                                              std::uint32_t a1, std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

// F16 numbers of eight groups, two a lane: where `b` has but one group's, the products of rows' and
// columns' numbers of this group, which F32 holds exactly.
__device__ __forceinline__ void multiply_scales(float (&c)[4], const std::uint32_t (&a)[2],
                                                std::uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%7,%7,%7};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "f"(0.0f));
}

// 16 bytes into shared memory, past the first cache.
__device__ __forceinline__ void fetch(std::uint8_t* to, const std::uint8_t* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All of this thread's groups but the last kPending have come.
template <int kPending>
__device__ __forceinline__ void await_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// How many have come before. What this warp has written before it, behind a __syncwarp(), is seen
// by whoever counts later, and what the earlier ones have written by this warp.
__device__ __forceinline__ std::uint32_t count_arrival(std::uint32_t* counter) {
  std::uint32_t n_before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(n_before)
               : "l"(counter)
               : "memory");
  return n_before;
}

__device__ __forceinline__ std::uint32_t word(const std::uint8_t* at) {
  return *reinterpret_cast<const std::uint32_t*>(at);
}
// Of an address that is a multiple of two.
__device__ __forceinline__ std::uint32_t word_between(const std::uint8_t* at, unsigned shift) {
  return __funnelshift_r(word(at), word(at + 4), shift);
}

}  // namespace unpaced::mat_mat
