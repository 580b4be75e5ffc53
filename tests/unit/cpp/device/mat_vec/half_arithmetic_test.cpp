// F16 numbers made on the host (device/kernels/weights/half_arithmetic.h), as a GPU makes them.
#include "device/kernels/weights/half_arithmetic.h"

#include <cmath>
#include <cstdint>

#include "check.h"

namespace half_arithmetic_test {
namespace {

using namespace unpaced;
using mat_vec::half_value;
using mat_vec::nearest_half;

constexpr std::uint32_t kInfinite = 0x7c00;

TEST(every_number_comes_back) {
  for (std::uint32_t half = 0; half <= kInfinite; ++half) {
    CHECK_EQ(nearest_half(half_value(half)), half);
    CHECK_EQ(nearest_half(-half_value(half)), half | 0x8000U);
    CHECK_EQ(nearest_half(static_cast<long double>(half_value(half))), half);
  }
  CHECK_EQ(nearest_half(NAN), 0x7fffU);
}

// Between two numbers the middle is the even one's, and what is beside it the nearer one's, however
// little that is.
TEST(ties_are_the_even_ones) {
  for (std::uint32_t half = 0; half < kInfinite; ++half) {
    const long double low = half_value(half);
    // What comes behind the largest number counts as the next power of two.
    const long double high = half + 1 == kInfinite ? 65536.0L : half_value(half + 1);
    const long double middle = (low + high) / 2;
    const std::uint32_t even = half + half % 2;
    CHECK_EQ(nearest_half(static_cast<float>(middle)), even);
    CHECK_EQ(nearest_half(middle), even);
    for (const long double little : {0x1p-12L, 0x1p-30L, 0x1p-38L}) {
      CHECK_EQ(nearest_half(middle + little * (high - low)), half + 1);
      CHECK_EQ(nearest_half(middle - little * (high - low)), half);
      CHECK_EQ(nearest_half(-middle + little * (high - low)), half | 0x8000U);
    }
  }
}

TEST(a_product_and_a_sum_are_rounded_once) {
  // (1 + 2^-10)^2 is 2^-20 more than 1 + 2^-9; what is added decides a tie.
  const std::uint32_t one = 0x3c00, more = one + 1;
  CHECK_EQ(mat_vec::fused_halves(more | more << 16, more | more << 16, 0), (one + 2) * 0x10001U);
  const std::uint32_t half_place = nearest_half(0x1p-11F);
  CHECK_EQ(mat_vec::fused_halves(one, one, half_place) & 0xffffU, one);
  CHECK_EQ(mat_vec::fused_halves(one, one, half_place + 1) & 0xffffU, more);
  CHECK_EQ(mat_vec::fused_halves(more, more, half_place) & 0xffffU, one + 3);
}

}  // namespace
}  // namespace half_arithmetic_test
