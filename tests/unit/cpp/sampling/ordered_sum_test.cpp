// Sums taken apart (sampling/ordered_sum.h) against the same sums made one addition after another,
// and the device's logarithms and powers against libm's.
#include "sampling/arithmetic/ordered_sum.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "sampling/arithmetic/libm_f32.h"

namespace unpaced {
namespace ordered_sum_test {
namespace {

constexpr std::size_t kRun = 64;

template <class Sum>
typename Sum::Value one_by_one(typename Sum::Value sum, const std::vector<float>& x,
                               std::size_t begin, std::size_t end, double divisor) {
  for (std::size_t i = begin; i < end; ++i) sum = Sum::add(sum, x[i], divisor);
  return sum;
}

template <class Sum>
Growth<typename Sum::Int> measure(const std::vector<float>& x, std::size_t begin, std::size_t end,
                                  double divisor, typename Sum::Value start) {
  typename Sum::Value sum = start;
  typename Sum::Value least = start;
  typename Sum::Value greatest = start;
  for (std::size_t i = begin; i < end; ++i) {
    sum = Sum::add(sum, x[i], divisor);
    if (std::fabs(sum) < std::fabs(least) || (sum < 0) != (start < 0)) least = sum;
    if (std::fabs(sum) > std::fabs(greatest)) greatest = sum;
  }
  return growth_between<Sum>(start, sum, least, greatest);
}

struct Total {
  double sum;
  std::size_t n_measured;  // runs that did not leave their power of two
};

// In runs: each measured from another sum of the same power of two and parity.
template <class Sum>
Total in_runs(const std::vector<float>& x, double divisor) {
  typename Sum::Value sum = 0;
  std::size_t n_measured = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kRun) {
    const std::size_t end = std::min(x.size(), begin + kRun);
    SumParts<Sum> parts = parts_of<Sum>(sum);
    if (parts.exponent > Sum::kMinExponent) {
      CHECK_EQ(value_of<Sum>(parts), sum);
      const auto start = measuring_sum<Sum>(parts.negative, parts.exponent, (parts.units & 1) != 0);
      const auto growth = measure<Sum>(x, begin, end, divisor, start);
      if (stays<Sum>(parts.units, growth)) {
        parts.units += growth.by;
        sum = value_of<Sum>(parts);
        ++n_measured;
        continue;
      }
    }
    sum = one_by_one<Sum>(sum, x, begin, end, divisor);
  }
  return {static_cast<double>(sum), n_measured};
}

template <class Sum>
void compare(double divisor = 1.0) {
  std::mt19937 random(7);
  std::size_t n_measured = 0;
  for (int round = 0; round < 60; ++round) {
    std::normal_distribution<double> normal(Sum::kSigned ? (round % 2 == 0 ? 2.0 : -2.0) : 0.0,
                                            round % 5 + 0.3);
    std::vector<float> x(6000);
    for (float& e : x) {
      const double drawn = normal(random);
      // Numbers with few bits make halves, which the sum's parity decides.
      const double number = round % 3 == 0   ? std::round(drawn * 4.0) / 8.0
                            : round % 3 == 1 ? std::ldexp(std::round(drawn), -20)
                                             : drawn;
      e = static_cast<float>(Sum::kSigned     ? number
                             : round % 3 == 1 ? std::fabs(number)
                                              : std::exp(-std::fabs(number)));
    }
    const Total total = in_runs<Sum>(x, divisor);
    CHECK_EQ(total.sum, static_cast<double>(one_by_one<Sum>(0, x, 0, x.size(), divisor)));
    n_measured += total.n_measured;
  }
  CHECK(n_measured > 2000);  // of 5640: the way under test is taken
}

TEST(float_sums_can_be_taken_apart) { compare<FloatSum>(); }
TEST(signed_float_sums_can_be_taken_apart) { compare<SignedSum>(); }
TEST(sums_of_squares_can_be_taken_apart) { compare<SquareSum>(); }
TEST(double_sums_can_be_taken_apart) { compare<DoubleSum>(); }
TEST(sums_of_quotients_can_be_taken_apart) { compare<DoubleSum>(3.7); }

TEST(a_half_is_rounded_by_the_sums_parity) {
  const float unit = std::ldexp(1.0F, -20);  // the last place of sums in [8, 16)
  const std::vector<float> halves{2.5F * unit};
  CHECK_EQ(measure<FloatSum>(halves, 0, 1, 1.0, measuring_sum<FloatSum>(false, 3, false)).by, 2);
  CHECK_EQ(measure<FloatSum>(halves, 0, 1, 1.0, measuring_sum<FloatSum>(false, 3, true)).by, 3);
}

TEST(a_sum_that_leaves_its_power_of_two_is_noticed) {
  const std::vector<float> up{5.0F};
  const auto start = measuring_sum<FloatSum>(false, 2, false);  // 4
  CHECK_EQ(start, 4.0F);
  CHECK(!stays<FloatSum>(1 << 23, measure<FloatSum>(up, 0, 1, 1.0, start)));
  const std::vector<float> down_and_up{-3.0F, 3.0F};
  const auto middle = measuring_sum<SignedSum>(false, 2, false);  // 6
  CHECK_EQ(middle, 6.0F);
  CHECK(!stays<SignedSum>(3 << 22, measure<SignedSum>(down_and_up, 0, 2, 1.0, middle)));
}

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
std::uint32_t bits(float x) {
  std::uint32_t b;
  std::memcpy(&b, &x, sizeof b);
  return b;
}

TEST(logarithms_and_powers_are_libms) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma")) return;  // glibc has other functions then
#endif
  for (std::uint32_t b = 0; b < 0x7f800000U; b += 977) {
    const float x = libm_f32::float_of(b);
    CHECK_EQ(bits(libm_f32::log(x)), bits(std::log(x)));
    CHECK_EQ(bits(libm_f32::log2(x)), bits(std::log2(x)));
  }
  std::mt19937 random(3);
  for (int i = 0; i < 300000; ++i) {
    const float x = i % 2 == 0 ? libm_f32::float_of(static_cast<std::uint32_t>(random()))
                               : static_cast<float>(random() % 100000U) / 1000.0F;
    const float y = i % 3 == 0 ? libm_f32::float_of(static_cast<std::uint32_t>(random()))
                               : static_cast<float>(random() % 40000U) / 500.0F - 40.0F;
    const float ours = libm_f32::pow(x, y);
    const float theirs = std::pow(x, y);
    if (theirs != theirs) {
      CHECK(ours != ours);
    } else {
      CHECK_EQ(bits(ours), bits(theirs));
    }
  }
}
#endif

}  // namespace
}  // namespace ordered_sum_test
}  // namespace unpaced
