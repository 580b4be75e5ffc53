// Memory of states' parts, kept for the next ones: fresh memory costs a page fault every 4 KiB, and
// giving it back as much again.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
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

  // Memory that take() will find, each page of it touched, so that a copy into it takes no longer
  // than any. False: there is none yet, and a piece of it has been touched. Throws std::bad_alloc.
  [[nodiscard]] bool prepare(std::size_t n_bytes) {
    const Fits fits{n_bytes};
    if (std::ranges::any_of(spare_, fits)) return true;
    if (making_.data != nullptr && !fits(making_)) making_ = {};
    if (making_.data == nullptr) {
      making_ = fresh(n_bytes, 0);
      n_touched_ = 0;
    }
    const std::size_t end = std::min(making_.capacity, n_touched_ + kTouchedBytes);
    for (; n_touched_ < end; n_touched_ += kPageBytes) making_.data[n_touched_] = std::byte{0};
    if (n_touched_ < making_.capacity) return false;
    put(std::exchange(making_, {}));
    return true;
  }

  // Throws std::bad_alloc. Not zeroed: every byte is written over. A state's last part has any
  // size, so memory is taken in a few sizes, and twice what is needed will do: what is put back is
  // used.
  [[nodiscard]] StatePart take(std::size_t n_bytes, std::int32_t n_cells) {
    const auto found = std::ranges::find_if(spare_, Fits{n_bytes});
    if (found == spare_.end()) return fresh(n_bytes, n_cells);
    StatePart part = std::move(*found);
    spare_.erase(found);
    n_spare_bytes_ -= part.capacity;
    part.n_bytes = n_bytes;
    part.n_cells = n_cells;
    return part;
  }

  void put(StatePart part) noexcept {
    const std::size_t capacity = part.capacity;
    try {
      spare_.push_back(std::move(part));
      n_spare_bytes_ += capacity;
    } catch (const std::bad_alloc&) {  // then it goes at once
    }
  }

  [[nodiscard]] std::size_t n_spare_bytes() const noexcept { return n_spare_bytes_; }
  [[nodiscard]] bool is_tidy() const noexcept { return n_spare_bytes_ <= kSpareBytes; }
  // Frees the one that lies here for longest, if there are too many.
  void tidy() noexcept {
    if (is_tidy()) return;
    n_spare_bytes_ -= spare_.front().capacity;
    spare_.pop_front();
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  // A page that nobody has used takes up to ten microseconds on a virtual machine.
  static constexpr std::size_t kTouchedBytes = 32 * kPageBytes;

  struct Fits {
    std::size_t n_bytes;
    bool operator()(const StatePart& part) const noexcept {
      return part.capacity >= n_bytes && part.capacity / 2 <= n_bytes;
    }
  };

  // Four sizes between two powers of two.
  static constexpr std::size_t capacity_of(std::size_t n_bytes) noexcept {
    const std::size_t step = std::max<std::size_t>(std::bit_floor(n_bytes) / 4, 1);
    return (n_bytes + step - 1) / step * step;
  }

  static StatePart fresh(std::size_t n_bytes, std::int32_t n_cells) {
    const std::size_t capacity = capacity_of(n_bytes);
    return {.data = std::make_unique_for_overwrite<std::byte[]>(capacity),
            .capacity = capacity,
            .n_bytes = n_bytes,
            .n_cells = n_cells};
  }

  std::deque<StatePart> spare_;
  std::size_t n_spare_bytes_ = 0;
  StatePart making_;
  std::size_t n_touched_ = 0;  // bytes of it
};

}  // namespace unpaced
