// Memory of states' parts, kept for the next ones: fresh memory costs a page fault every 4 KiB, and
// giving it back as much again.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <utility>

#include "kept/kept_state.h"

namespace unpaced {

// Decode thread only.
class PartPool {
 public:
  // What is beyond is freed by tidy().
  static constexpr std::size_t kSpareBytes = std::size_t{32} << 20U;

  // Throws std::bad_alloc. Not zeroed: every byte is written over.
  [[nodiscard]] StatePart take(std::size_t n_bytes, std::int32_t n_cells) {
    for (auto it = spare_.begin(); it != spare_.end(); ++it) {
      if (it->n_bytes != n_bytes) continue;
      StatePart part = std::move(*it);
      spare_.erase(it);
      n_spare_bytes_ -= n_bytes;
      part.n_cells = n_cells;
      return part;
    }
    return {.data = std::make_unique_for_overwrite<std::byte[]>(n_bytes),
            .n_bytes = n_bytes,
            .n_cells = n_cells};
  }

  void put(StatePart part) noexcept {
    const std::size_t n_bytes = part.n_bytes;
    try {
      spare_.push_back(std::move(part));
      n_spare_bytes_ += n_bytes;
    } catch (const std::bad_alloc&) {  // then it goes at once
    }
  }

  [[nodiscard]] bool is_tidy() const noexcept { return n_spare_bytes_ <= kSpareBytes; }
  // Frees the one that lies here for longest, if there are too many.
  void tidy() noexcept {
    if (is_tidy()) return;
    n_spare_bytes_ -= spare_.front().n_bytes;
    spare_.pop_front();
  }

 private:
  std::deque<StatePart> spare_;
  std::size_t n_spare_bytes_ = 0;
};

}  // namespace unpaced
