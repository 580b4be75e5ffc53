#include "base/heap_reserve.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace unpaced {

void reserve_heap([[maybe_unused]] std::size_t n_bytes) {
  // A sanitizer's own malloc has no arenas, and watches each byte that is written.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Below the mmap threshold, so that the blocks come from the arena.
  constexpr std::size_t kBlockBytes = 32UL << 10U;
  // The reserve is free memory at its arena's top, and would be given back at once. The threshold
  // is all arenas': twice the reserve is kept at each one's top, more is not.
  constexpr std::size_t kMostInt = std::numeric_limits<int>::max();
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min(2 * n_bytes, kMostInt)));
  std::vector<std::unique_ptr<std::byte[]>> blocks(n_bytes / kBlockBytes);
  for (auto& block : blocks) {
    block = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes);
    std::memset(block.get(), 0, kBlockBytes);
  }
#endif
}

void give_back_heap() noexcept { malloc_trim(0); }

}  // namespace unpaced
