#include "device/phases/shared_memory.h"

#include <algorithm>

namespace unpaced {

std::size_t SharedMemory::place(std::size_t n_bytes, std::size_t from, std::size_t until) {
  const std::size_t n = (n_bytes + alignment_ - 1) / alignment_ * alignment_;
  std::size_t begin = 0;
  // The first gap between those that are wanted at the same time.
  for (const Placed& other : placed_) {
    if (other.until < from || other.from > until) continue;
    if (begin + n <= other.begin) break;
    begin = std::max(begin, other.end);
  }
  const auto behind = std::ranges::upper_bound(placed_, begin, {}, &Placed::begin);
  placed_.insert(behind, {begin, begin + n, from, until});
  n_bytes_ = std::max(n_bytes_, begin + n);
  return begin;
}

}  // namespace unpaced
