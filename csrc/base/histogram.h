// Counts values by size, for the front end's token path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace unpaced {

// Any thread.
class Histogram {
 public:
  // Upper bounds of the buckets, inclusive and ascending; what is above all of them has its own.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    const std::lock_guard lock(mutex_);
    ++counts_[static_cast<std::size_t>(bucket - bounds_.begin())];
    total_ += value;
  }

  [[nodiscard]] const std::vector<double>& bounds() const noexcept { return bounds_; }
  // One more than there are bounds.
  [[nodiscard]] std::vector<std::uint64_t> counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  // Sum of the values.
  [[nodiscard]] double total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  const std::vector<double> bounds_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::uint64_t> counts_;
  double total_ = 0;
};

}  // namespace unpaced
