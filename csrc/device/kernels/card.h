// What a kernel's choice hangs on: the card and its driver's word on it.
#pragma once

#include <cstdint>

namespace unpaced {

struct Card {
  std::int32_t compute = 0;  // 10 * major + minor of its compute capability
  // The same of the code that it runs, which may be PTX of an older card: ggml-cuda's mat-vecs have
  // as many warps as that one's.
  std::int32_t code = 0;
  std::int32_t n_multiprocessors = 0;
  std::int32_t shared_bytes_max = 0;    // of one block, as far as a kernel may ask for
  bool dependents_start_early = false;  // programmatic launches: compute 9.0 and later, unless
                                        // GGML_CUDA_PDL=0
};

// The newest code of this build for a card of this compute capability, both as Card has them.
[[nodiscard]] std::int32_t newest_code(std::int32_t compute) noexcept;

// CUDA's number of the device. Throws std::runtime_error.
[[nodiscard]] Card find_card(int device);

}  // namespace unpaced
