// Loops over whole logit rows: the only part of sampling whose cost grows with the vocabulary.
// Chosen once for the CPU that runs (AVX-512, AVX2 with FMA, or what the compiler targets).
#pragma once

#include <cstdint>

namespace unpaced {

inline constexpr std::int32_t kLanes = 16;        // floats a vector
inline constexpr std::int32_t kPageFloats = 256;  // a row is cut into pages of this size

// Every array is a multiple of kLanes long; no alignment is needed.
struct VocabularyKernels {
  const char* name;

  // Best logit of each lane (elements lane, lane + 16, ...) of n_pages pages of `logits`, into
  // maxima[16 * n_pages]. Returns false if a logit is NaN or +inf; maxima are then meaningless.
  bool (*scan)(const float* logits, std::int32_t n_pages, float* maxima);

  float (*max)(const float* values, std::int32_t n);

  // How many of n values reach the threshold.
  std::int32_t (*count)(const float* values, std::int32_t n, float threshold);

  // Pages of which a maximum (as scan gives them) reaches the threshold, ascending; returns how
  // many.
  std::int32_t (*collect_pages)(const float* maxima, std::int32_t n_pages, float threshold,
                                std::int32_t* pages);

  // Positions of the values in one page that reach the threshold, ascending; returns how many.
  std::int32_t (*collect)(const float* page, float threshold, std::uint8_t* positions);

  // out[i] = expf(values[i] - shift) for values <= shift, equal to libm's bit by bit.
  void (*exp_shifted)(const float* values, std::int32_t n, float shift, float* out);

  // ranks[i] = how many of the n distinct keys are smaller than keys[i]. n a multiple of 8.
  void (*rank)(const std::int64_t* keys, std::int32_t n, std::int64_t* ranks);
};

// The best kernels for this CPU.
const VocabularyKernels& vocabulary_kernels() noexcept;

// Every set that this CPU can run, the baseline first: for tests. Returns how many.
std::int32_t all_vocabulary_kernels(const VocabularyKernels** out, std::int32_t n_max) noexcept;

}  // namespace unpaced
