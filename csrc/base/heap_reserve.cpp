#include "base/heap_reserve.h"

#include <malloc.h>

#include <limits>
#include <memory>
#include <vector>

namespace unpaced {

void reserve_heap(std::size_t n_bytes) {
  // Below the mmap threshold, so that the blocks come from the arena.
  constexpr std::size_t kBlockBytes = 32UL << 10U;
  // Freed memory at the arena's top would be given back at once.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  std::vector<std::unique_ptr<std::byte[]>> blocks(n_bytes / kBlockBytes);
  for (auto& block : blocks) block = std::make_unique<std::byte[]>(kBlockBytes);
}

}  // namespace unpaced
