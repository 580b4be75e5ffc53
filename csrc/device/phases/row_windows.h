// Into how many parts ggml divides the cells of one query, window by window: a row among several
// has the bits that it has alone only if its cells are divided so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace unpaced {

class RowWindows {
 public:
  // cells: of the smallest window, by which they grow.
  explicit RowWindows(std::int32_t cells) : cells_(cells) {}

  // Of the next larger window.
  void add(std::int32_t n_parts) { parts_.push_back(static_cast<std::uint16_t>(n_parts)); }

  [[nodiscard]] std::int32_t cells() const noexcept { return cells_; }
  // The largest window that is known, with all smaller ones.
  [[nodiscard]] std::int32_t n_cells() const noexcept {
    return cells_ * static_cast<std::int32_t>(parts_.size());
  }
  [[nodiscard]] std::span<const std::uint16_t> parts() const noexcept { return parts_; }
  // The most parts of a window of up to so many cells; 0: some of these windows is not known.
  [[nodiscard]] std::int32_t most(std::int64_t n_cells) const noexcept {
    const std::int64_t n = (n_cells + cells_ - 1) / cells_;
    if (n < 1 || n > static_cast<std::int64_t>(parts_.size())) return 0;
    return *std::max_element(parts_.begin(), parts_.begin() + n);
  }

 private:
  std::int32_t cells_;
  std::vector<std::uint16_t> parts_;
};

}  // namespace unpaced
