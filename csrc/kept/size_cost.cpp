#include "kept/size_cost.h"

#include <algorithm>
#include <bit>

namespace unpaced {
namespace {

// What a new time weighs.
constexpr double kLonger = 0.25;
constexpr double kShorter = 0.5;
// A time counts as this many times what was expected at most.
constexpr double kSurprise = 2.0;

}  // namespace

SizeCost::Bounds SizeCost::bounds(double n) const noexcept {
  Point below;
  Point above;
  for (const Point& point : points_) {
    if (point.n == 0) continue;
    if (point.n <= n) below = point;
    if (point.n < n) continue;
    above = point;
    break;
  }
  if (above.n == 0 && below.n == 0) return {};
  if (above.n == 0) return {.least_us = below.us, .most_us = below.us * n / below.n};
  if (below.n == 0) return {.least_us = above.us * n / above.n, .most_us = above.us};
  const double part = above.n > below.n ? (n - below.n) / (above.n - below.n) : 0;
  const double us = below.us + part * (above.us - below.us);
  return {.least_us = us, .most_us = us};
}

double SizeCost::least_us(std::int32_t n) const noexcept { return bounds(n).least_us; }

double SizeCost::most_us(std::int32_t n) const noexcept { return bounds(n).most_us; }

void SizeCost::observe(std::int32_t n, double us) noexcept {
  if (n <= 0 || us <= 0) return;
  const double expected = most_us(n);
  if (expected > 0) us = std::min(us, kSurprise * expected);
  const auto power = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(n) - 1));
  Point& point = points_[std::min(power, kPoints - 1)];
  const double weight = point.n == 0 ? 1 : us > expected ? kLonger : kShorter;
  point.n += weight * (n - point.n);
  point.us += weight * (us - point.us);
  for (Point& other : points_) {
    if (other.n == 0 || &other == &point) continue;
    const double each = point.us / point.n * other.n;
    other.us = other.n < point.n ? std::clamp(other.us, each, point.us)
                                 : std::clamp(other.us, point.us, each);
  }
}

double SizeCost::each_us() const noexcept {
  double each = 0;
  for (const Point& point : points_) {
    if (point.n > 0) each = point.us / point.n;
  }
  return each;
}

}  // namespace unpaced
