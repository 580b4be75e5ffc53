// Sums that are rounded after every addition, taken apart so that many threads can make them.
//
// While a sum stays within one power of two it is an integer in units of its last place, and adding
// a number adds an integer: the number in those units, rounded. Only if the number lies exactly
// halfway does the sum decide, by whether it is even (round to nearest, ties to even). So what a
// run of numbers adds to a sum depends on nothing but the sum's power of two and its last bit: the
// run is added to an even and to an odd sum of that power of two, and what those grow by is what
// any such sum grows by, as long as it does not leave its power of two on the way. There the
// numbers are added one by one.
#pragma once

#include <cstdint>

#include "sampling/arithmetic/host_device.h"

namespace unpaced {

// What a run adds to a sum, in units of the sum's last place. The sign is the sum's: a negative sum
// that falls grows.
template <class Int>
struct Growth {
  Int by;
  Int low;   // signed sums: how far below its start the sum gets on the way, 0 or less
  Int high;  // and above; of unsigned sums `by`
};

// How a sum is made of values, which are float. kMinExponent: sums below 2^that are made one by one
// (a float's last place does not change any more somewhere down there).

// float += float, none negative.
struct FloatSum {
  using Value = float;
  using Bits = std::uint32_t;
  using Int = std::int32_t;
  static constexpr std::int32_t kBits = 24;  // of the significand
  static constexpr std::int32_t kBias = 127;
  static constexpr std::int32_t kMinExponent = -120;
  static constexpr bool kSigned = false;
  UNPACED_HD static Value add(Value sum, float x, double) noexcept { return sum + x; }
};

// float += float, of either sign.
struct SignedSum : FloatSum {
  static constexpr bool kSigned = true;
};

// The sum of squares: float = float + double, rounded to double first, then to float.
struct SquareSum : FloatSum {
  UNPACED_HD static Value add(Value sum, float x, double) noexcept {
    return static_cast<float>(static_cast<double>(sum) + static_cast<double>(x) * x);
  }
};

// double += float / divisor, none negative.
struct DoubleSum {
  using Value = double;
  using Bits = std::uint64_t;
  using Int = std::int64_t;
  static constexpr std::int32_t kBits = 53;
  static constexpr std::int32_t kBias = 1023;
  static constexpr std::int32_t kMinExponent = -1000;
  static constexpr bool kSigned = false;
  UNPACED_HD static Value add(Value sum, float x, double divisor) noexcept {
    return sum + x / divisor;
  }
};

// A sum taken apart: (-1)^negative * units * 2^(exponent + 1 - kBits), units in [2^(kBits - 1),
// 2^kBits) if the exponent is above kMinExponent.
template <class Sum>
struct SumParts {
  bool negative;
  std::int32_t exponent;
  typename Sum::Int units;
};

template <class Sum>
UNPACED_HD SumParts<Sum> parts_of(typename Sum::Value sum) noexcept {
  typename Sum::Bits bits;
  __builtin_memcpy(&bits, &sum, sizeof(bits));
  constexpr int kWidth = sizeof(bits) * 8;
  constexpr auto kHidden = typename Sum::Bits{1} << (Sum::kBits - 1);
  const auto exponent = static_cast<std::int32_t>(bits << 1 >> Sum::kBits) - Sum::kBias;
  return {bits >> (kWidth - 1) != 0, exponent,
          static_cast<typename Sum::Int>((bits & (kHidden - 1)) | kHidden)};
}

template <class Sum>
UNPACED_HD typename Sum::Value value_of(const SumParts<Sum>& parts) noexcept {
  constexpr int kWidth = sizeof(typename Sum::Bits) * 8;
  constexpr auto kHidden = typename Sum::Bits{1} << (Sum::kBits - 1);
  const typename Sum::Bits bits =
      static_cast<typename Sum::Bits>(parts.negative ? 1 : 0) << (kWidth - 1) |
      static_cast<typename Sum::Bits>(parts.exponent + Sum::kBias) << (Sum::kBits - 1) |
      (static_cast<typename Sum::Bits>(parts.units) & (kHidden - 1));
  typename Sum::Value sum;
  __builtin_memcpy(&sum, &bits, sizeof(bits));
  return sum;
}

template <class Sum>
UNPACED_HD Growth<typename Sum::Int> no_growth() noexcept {
  Growth<typename Sum::Int> none;  // no sum stays
  none.by = 0;
  none.high = typename Sum::Int{1} << Sum::kBits;
  none.low = -none.high;
  return none;
}

// The sum from which runs are measured: of the sign and power of two, odd or even. Unsigned sums
// only rise.
template <class Sum>
UNPACED_HD typename Sum::Value measuring_sum(bool negative, std::int32_t exponent,
                                             bool odd) noexcept {
  constexpr auto kUnits = typename Sum::Int{Sum::kSigned ? 3 : 2} << (Sum::kBits - 2);
  return value_of<Sum>(
      {negative, exponent, static_cast<typename Sum::Int>(kUnits + (odd ? 1 : 0))});
}

// Growth from `start` to `end`, by way of `least` and `greatest` in size, if all are of one sign
// and power of two.
template <class Sum>
UNPACED_HD Growth<typename Sum::Int> growth_between(typename Sum::Value start,
                                                    typename Sum::Value end,
                                                    typename Sum::Value least,
                                                    typename Sum::Value greatest) noexcept {
  const SumParts<Sum> from = parts_of<Sum>(start);
  const SumParts<Sum> to = parts_of<Sum>(end);
  if (to.exponent != from.exponent || to.negative != from.negative) return no_growth<Sum>();
  const typename Sum::Int by = to.units - from.units;
  if (!Sum::kSigned) return {by, 0, by};
  const SumParts<Sum> low = parts_of<Sum>(least);
  const SumParts<Sum> high = parts_of<Sum>(greatest);
  if (low.exponent != from.exponent || low.negative != from.negative ||
      high.exponent != from.exponent || high.negative != from.negative) {
    return no_growth<Sum>();
  }
  return {by, low.units - from.units, high.units - from.units};
}

// Whether a sum of so many units stays within its power of two.
template <class Sum>
UNPACED_HD bool stays(typename Sum::Int units, const Growth<typename Sum::Int>& growth) noexcept {
  constexpr auto kEnd = typename Sum::Int{1} << Sum::kBits;
  return units + growth.high < kEnd && (!Sum::kSigned || units + growth.low >= kEnd / 2);
}

}  // namespace unpaced
