#include "sampling/row/vocabulary_kernels.h"

#include "sampling/arithmetic/float_math.h"
#include "sampling/arithmetic/libm_f32.h"

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

using libm_f32::kExp2Table;

namespace baseline {
#define UNPACED_KERNEL_NAME "baseline"
#define UNPACED_KERNEL_BITS 128
#include "sampling/row/vocabulary_kernels.inc"
#undef UNPACED_KERNEL_NAME
#undef UNPACED_KERNEL_BITS
}  // namespace baseline

#if UNPACED_X86_LEVELS
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define UNPACED_KERNEL_NAME "avx2"
#define UNPACED_KERNEL_BITS 256
#include "sampling/row/vocabulary_kernels.inc"
#undef UNPACED_KERNEL_NAME
#undef UNPACED_KERNEL_BITS
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
namespace avx512 {
#define UNPACED_KERNEL_NAME "avx512"
#define UNPACED_KERNEL_BITS 512
#include "sampling/row/vocabulary_kernels.inc"
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
