#include "vocabulary_kernels.h"

#include "float_math.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define UNPACED_X86_LEVELS 1
#include <immintrin.h>
#else
#define UNPACED_X86_LEVELS 0
#endif

// 64-byte vectors are passed in different ways at different levels; they never leave this file.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace unpaced {
namespace {

// Bits of 2^(i/32), less i << 47, so that adding k << 47 with k % 32 == i gives 2^(k/32).
constexpr std::uint64_t kExp2Table[32] = {
    0x3ff0000000000000U, 0x3fefd9b0d3158574U, 0x3fefb5586cf9890fU, 0x3fef9301d0125b51U,
    0x3fef72b83c7d517bU, 0x3fef54873168b9aaU, 0x3fef387a6e756238U, 0x3fef1e9df51fdee1U,
    0x3fef06fe0a31b715U, 0x3feef1a7373aa9cbU, 0x3feedea64c123422U, 0x3feece086061892dU,
    0x3feebfdad5362a27U, 0x3feeb42b569d4f82U, 0x3feeab07dd485429U, 0x3feea47eb03a5585U,
    0x3feea09e667f3bcdU, 0x3fee9f75e8ec5f74U, 0x3feea11473eb0187U, 0x3feea589994cce13U,
    0x3feeace5422aa0dbU, 0x3feeb737b0cdc5e5U, 0x3feec49182a3f090U, 0x3feed503b23e255dU,
    0x3feee89f995ad3adU, 0x3feeff76f2fb5e47U, 0x3fef199bdd85529cU, 0x3fef3720dcef9069U,
    0x3fef5818dcfba487U, 0x3fef7c97337b9b5fU, 0x3fefa4afa2a490daU, 0x3fefd0765b6e4540U,
};

namespace baseline {
#define UNPACED_KERNEL_NAME "baseline"
#define UNPACED_KERNEL_BITS 128
#include "vocabulary_kernels.inc"
#undef UNPACED_KERNEL_NAME
#undef UNPACED_KERNEL_BITS
}  // namespace baseline

#if UNPACED_X86_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define UNPACED_KERNEL_NAME "avx2"
#define UNPACED_KERNEL_BITS 256
#include "vocabulary_kernels.inc"
#undef UNPACED_KERNEL_NAME
#undef UNPACED_KERNEL_BITS
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
namespace avx512 {
#define UNPACED_KERNEL_NAME "avx512"
#define UNPACED_KERNEL_BITS 512
#include "vocabulary_kernels.inc"
#undef UNPACED_KERNEL_NAME
#undef UNPACED_KERNEL_BITS
}  // namespace avx512
#pragma GCC pop_options
#endif

}  // namespace

std::int32_t all_vocabulary_kernels(const VocabularyKernels** out, std::int32_t n_max) noexcept {
  std::int32_t n = 0;
  if (n < n_max) out[n++] = &baseline::kKernels;
#if UNPACED_X86_LEVELS
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (has_avx2 && n < n_max) out[n++] = &avx2::kKernels;
  if (has_avx512 && n < n_max) out[n++] = &avx512::kKernels;
#endif
  return n;
}

const VocabularyKernels& vocabulary_kernels() noexcept {
  constexpr std::int32_t kMaxLevels = 3;
  const VocabularyKernels* levels[kMaxLevels];
  return *levels[all_vocabulary_kernels(levels, kMaxLevels) - 1];
}

}  // namespace unpaced
