// Between which numbers top-p's running sum lies, without making it.
//
// Top-p adds float32 numbers one after the other, twice: the exponentials e_1 .. e_N of all
// candidates, whose sum s divides each of them, and the quotients q_1 .. q_n of the best ones. Here
// is what roundings can do to both at most, so that sums made in double precision in any order tell
// where the cut is not. u = 2^-24; every addition rounds to nearest.
//
//  1. A float sum a to which b >= 0 is added becomes c with |c - (a + b)| <= min(b, u c): a itself
//  is
//     one of the numbers that c could be, and rounding moves c by at most half its last place. Sums
//     of numbers >= 0 do not fall, and the best candidate's exponential is 1, so c <= s and s >= 1.
//     With S the exact sum: |s - S| <= sum of min(e_i, u s) <= s h, h = sum of min(e_i, u). So
//     S / (1 + h) <= s <= S / (1 - h). Sums of floats never underflow.
//  2. q_i = e_i / s rounded: off by at most u e_i / s, and 2^-150 where it is subnormal.
//  3. The running sum c_n of the quotients has n - 1 roundings of at most u c_n each (the first
//     addition is to 0): c_n (1 - (n - 1) u) <= q_1 + ... + q_n <= c_n (1 + (n - 1) u).
//
// With C = e_1 + ... + e_n, exactly, therefore
//     (1 - u) (1 - h) C / S - n 2^-150            (1 + u) (1 + h) C / S + n 2^-150
//     --------------------------------  <= c_n <= --------------------------------
//            1 + (n - 1) u                               1 - (n - 1) u
// What is measured are S, h and C with N roundings in double precision each: a relative 2^-34 at
// most for N < 2^18 in any order; a guard of 2^-30 covers all three, the roundings of these
// formulas and n 2^-150 as well, since C / S >= 1 / N.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/host_device.h"

namespace unpaced {

class NucleusBounds {
 public:
  // A number's part of `slack`.
  UNPACED_HD static double slack_of(float exponential) noexcept {
    return exponential < kRounding ? static_cast<double>(exponential) : kRounding;
  }

  // sum: of the exponentials; slack: of slack_of() of each.
  UNPACED_HD NucleusBounds(double sum, double slack) noexcept
      : least_((1.0 - kRounding) * (1.0 - slack) * (1.0 - kGuard) / sum),
        most_((1.0 + kRounding) * (1.0 + slack) * (1.0 + kGuard) / sum) {}

  // Whether top-p's sum of the first n, of which the exponentials sum to `mass`, is surely less.
  UNPACED_HD bool is_below(double mass, std::int32_t n, float p) const noexcept {
    return mass * most_ < p * (1.0 - (n - 1) * kRounding);
  }

  // Whether it is surely p or more.
  UNPACED_HD bool reaches(double mass, std::int32_t n, float p) const noexcept {
    return mass * least_ > p * (1.0 + (n - 1) * kRounding);
  }

 private:
  static constexpr double kRounding = 0x1p-24;
  static constexpr double kGuard = 0x1p-30;

  double least_;  // of one exponential's share, by it
  double most_;
};

}  // namespace unpaced
