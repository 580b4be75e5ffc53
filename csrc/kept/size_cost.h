// What so many of something take that are done at once, learned from their times by their number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace unpaced {

// One point for the numbers between two powers of two, and lines from point to point: what is known
// of large numbers does not fade while only small ones come. But more take no less time in all, and
// no more for each: a new time of one number bounds what others are known to take. Decode thread
// only.
class SizeCost {
 public:
  // So many, at least one, took so long. Who else is at work can make a time longer but not
  // shorter: a longer one counts for less, and as twice what was expected at most.
  void observe(std::int32_t n, double us) noexcept;

  // Microseconds that n of them take, at least and at most; 0: nothing is known. Between two
  // numbers that were seen both are on the line from one to the other.
  [[nodiscard]] double least_us(std::int32_t n) const noexcept;
  [[nodiscard]] double most_us(std::int32_t n) const noexcept;
  // What one takes where as many are done at once as have been seen; 0: nothing is known.
  [[nodiscard]] double each_us() const noexcept;
  [[nodiscard]] bool is_known() const noexcept { return each_us() > 0; }

 private:
  struct Point {
    double n = 0;  // 0: nothing is known
    double us = 0;
  };
  struct Bounds {
    double least_us = 0;
    double most_us = 0;
  };
  [[nodiscard]] Bounds bounds(double n) const noexcept;

  // Of one, of two, of up to 4, 8 ... 16384 and of more.
  static constexpr std::size_t kPoints = 16;
  std::array<Point, kPoints> points_;
};

}  // namespace unpaced
