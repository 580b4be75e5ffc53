// How many cells the next part has, learnt from how long the last ones took.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace unpaced {

// Decode thread only.
class PartSize {
 public:
  [[nodiscard]] std::int32_t n() const noexcept { return n_; }
  // Cells that one part may have, as far as is known.
  [[nodiscard]] std::int32_t n_quick() const noexcept { return n_quick_; }

  // A part of n cells took so long. n_max: cells of a part at most.
  void learn(std::int32_t n, std::int64_t part_us, std::int32_t n_max) noexcept {
    if (n != n_) return;  // a state's last one
    if (n_ == 1) us_min_ = std::min(us_min_, part_us);
    part_us -= us_min_;
    // A slow part may have been interrupted. Smaller parts cost little, but where a request's cells
    // lie depends on n_quick(), and with them its bits: that takes a second part that says so.
    if (part_us > kPartUs) {
      const bool is_confirmed = n_ >= n_slow_;
      n_slow_ = n_;
      n_ = std::max(1, n_ / 2);
      if (is_confirmed) n_quick_ = n_;
    } else if (part_us >= kPartUs / 2) {
      if (2 * n_ >= n_slow_) n_quick_ = n_;
    } else {
      if (n_ >= n_slow_) n_slow_ = kNone;
      n_ = std::min(2 * n_, n_max);
      n_quick_ = std::max(n_quick_, n_);
    }
  }

 private:
  // A part takes at most so long beyond what it takes with one cell, which grows with the cells
  // that there are in all: where they lie scattered, each may cost a call of its own.
  static constexpr std::int64_t kPartUs = 750;
  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max() / 2;

  std::int32_t n_ = 1;
  std::int32_t n_slow_ = kNone;  // that the last slow part had
  std::int32_t n_quick_ = kNone;
  std::int64_t us_min_ = std::numeric_limits<std::int64_t>::max();  // of one cell
};

}  // namespace unpaced
