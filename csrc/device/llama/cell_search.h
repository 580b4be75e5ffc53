// Where llama_decode finds free cells, batch after batch (llama_kv_cache::find_slot): asked for the
// cells of several batches at once it might begin elsewhere, and another order of cells sums to
// other last bits. Source: llama.cpp 0c1e57098 src/llama-kv-cache.cpp:898-1080.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unpaced {

class CellSearch {
 public:
  // taken: scratch, which outlives this. head: where the next search begins; n_used: cells that are
  // not empty.
  CellSearch(std::vector<bool>& taken, std::uint32_t n_cells, std::uint32_t head,
             std::uint32_t n_used)
      : taken_(taken), n_cells_(n_cells), head_(head), n_used_(n_used) {
    taken_.assign(n_cells, false);
  }

  // Before the cells of a batch of n_tokens.
  void begin_batch(std::size_t n_tokens) noexcept {
    const auto n = static_cast<std::uint32_t>(n_tokens);
    // Enough unused cells before the head: it begins with the first one.
    if (head_ > n_used_ + 2 * n) head_ = 0;
    n_used_ += n;
  }

  // is_empty(cell): before the first batch. There must be one left.
  template <class IsEmpty>
  [[nodiscard]] std::int32_t next(const IsEmpty& is_empty) {
    while (head_ >= n_cells_ || taken_[head_] || !is_empty(head_)) {
      head_ = head_ + 1 < n_cells_ ? head_ + 1 : 0;
    }
    taken_[head_] = true;
    return static_cast<std::int32_t>(head_++);
  }

 private:
  std::vector<bool>& taken_;
  const std::uint32_t n_cells_;
  std::uint32_t head_;
  std::uint32_t n_used_;
};

}  // namespace unpaced
