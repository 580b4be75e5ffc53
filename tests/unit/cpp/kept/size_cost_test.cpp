// What is learned of how long so many of something take, exact or disturbed.
#include "kept/size_cost.h"

#include <cmath>
#include <random>

#include "check.h"

namespace size_cost_test {
namespace {

using unpaced::SizeCost;

bool is_near(double value, double expected, double part) {
  return std::abs(value - expected) <= part * expected;
}

TEST(nothing_is_known_at_first) {
  SizeCost cost;
  cost.observe(0, 10);
  cost.observe(5, 0);
  CHECK(!cost.is_known());
  CHECK_EQ(cost.most_us(10), 0.0);
  CHECK_EQ(cost.least_us(10), 0.0);
  CHECK_EQ(cost.each_us(), 0.0);
}

TEST(one_time_bounds_all_others) {
  SizeCost cost;
  cost.observe(100, 1000);
  CHECK(cost.is_known());
  CHECK_EQ(cost.most_us(100), 1000.0);
  CHECK_EQ(cost.least_us(100), 1000.0);
  CHECK_EQ(cost.least_us(50), 500.0);
  CHECK_EQ(cost.most_us(50), 1000.0);
  CHECK_EQ(cost.least_us(300), 1000.0);
  CHECK_EQ(cost.most_us(300), 3000.0);
  CHECK_EQ(cost.each_us(), 10.0);
}

TEST(between_two_times_it_is_on_the_line) {
  SizeCost cost;
  cost.observe(10, 400);
  cost.observe(110, 1400);
  CHECK_EQ(cost.most_us(60), 900.0);
  CHECK_EQ(cost.least_us(60), 900.0);
  CHECK_EQ(cost.each_us(), 1400.0 / 110);
}

// So much for each time, and so much for each of them: what a part takes, and a step.
TEST(it_finds_what_a_time_is_made_of_through_noise) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto of = [](int n) { return 300.0 + 7.0 * n; };
    SizeCost cost;
    for (int i = 0; i < 3000; ++i) {
      const auto n = static_cast<std::int32_t>(1 + random() % 512);
      double us = of(n) * (1.0 + static_cast<double>(random() % 200) / 1000.0);
      if (random() % 50 == 0) us *= 20;
      cost.observe(n, us);
    }
    for (const std::int32_t n : {8, 30, 64, 200, 400}) {
      CHECK(cost.most_us(n) > 0.7 * of(n) && cost.most_us(n) < 2.0 * of(n));
    }
  }
}

TEST(what_is_known_of_large_numbers_does_not_fade_while_small_ones_come) {
  SizeCost cost;
  cost.observe(512, 5000);
  for (int i = 0; i < 10'000; ++i) cost.observe(1, 900);
  CHECK_EQ(cost.most_us(512), 5000.0);
  CHECK_EQ(cost.most_us(1), 900.0);
}

// Small parts have become quick: large ones take no more for each, and others no longer than these.
TEST(a_new_time_bounds_those_of_other_numbers) {
  SizeCost cost;
  cost.observe(8, 8000);
  cost.observe(32, 32'000);
  cost.observe(512, 512'000);
  for (int i = 0; i < 40; ++i) cost.observe(32, 32);
  CHECK(is_near(cost.most_us(512), 512, 0.01));
  CHECK(cost.most_us(8) <= 33);
  for (int i = 0; i < 80; ++i) cost.observe(512, 1e6);
  CHECK(cost.most_us(32) >= 0.99e6 / 16);
}

TEST(the_first_time_of_a_number_counts_as_twice_what_was_to_be_expected_at_most) {
  SizeCost cost;
  cost.observe(4, 100);
  cost.observe(16, 1'000'000);
  CHECK_EQ(cost.most_us(16), 800.0);
}

TEST(it_follows_a_machine_that_becomes_slower_or_faster) {
  SizeCost cost;
  for (int i = 0; i < 10; ++i) cost.observe(64, 1000);
  for (int i = 0; i < 30; ++i) cost.observe(64, 20'000);
  CHECK(is_near(cost.most_us(64), 20'000, 0.01));
  for (int i = 0; i < 10; ++i) cost.observe(64, 500);
  CHECK(is_near(cost.most_us(64), 500, 0.05));
}

}  // namespace
}  // namespace size_cost_test
