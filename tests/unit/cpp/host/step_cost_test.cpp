// What is learned of steps' costs from their times, exact or disturbed.
#include "host/step_cost.h"

#include <cmath>
#include <random>

#include "check.h"

namespace step_cost_test {
namespace {

using unpaced::StepCost;

bool is_near(double value, double expected, double part) {
  return std::abs(value - expected) <= part * expected;
}

TEST(nothing_is_known_before_a_step) {
  const StepCost cost(4);
  CHECK_EQ(cost.decode_us(4), 0.0);
  CHECK_EQ(cost.prompt_token_us(), 0.0);
  CHECK_EQ(cost.n_seen(), 0U);
}

TEST(steps_by_their_number_of_slots_that_decode) {
  StepCost cost(8);
  cost.observe(2, 0, 2000);
  cost.observe(5, 0, 5000);
  CHECK_EQ(cost.decode_us(1), 2000.0);  // the next larger one: no smaller one has been seen
  CHECK_EQ(cost.decode_us(2), 2000.0);
  CHECK_EQ(cost.decode_us(4), 2000.0);
  CHECK_EQ(cost.decode_us(5), 5000.0);
  CHECK_EQ(cost.decode_us(8), 5000.0);
  CHECK_EQ(cost.n_seen(), 2U);
}

TEST(prompt_tokens_cost_what_a_step_takes_beyond_decoding) {
  StepCost cost(4);
  cost.observe(3, 0, 4000);
  cost.observe(3, 50, 9000);
  CHECK_EQ(cost.prompt_token_us(), 100.0);
  cost.observe(0, 500, 5000);  // alone: chunks of another size
  CHECK_EQ(cost.prompt_token_us(), 100.0);
}

TEST(a_prompt_alone_is_a_first_guess) {
  StepCost cost(4);
  cost.observe(0, 100, 20'000);
  CHECK_EQ(cost.prompt_token_us(), 200.0);
  cost.observe(2, 0, 1000);
  cost.observe(2, 10, 11'000);
  CHECK_EQ(cost.prompt_token_us(), 1000.0);
}

TEST(times_without_tokens_or_length_teach_nothing) {
  StepCost cost(2);
  cost.observe(0, 0, 500);
  cost.observe(1, 0, 0);
  CHECK_EQ(cost.n_seen(), 0U);
  CHECK_EQ(cost.decode_us(1), 0.0);
}

TEST(a_step_that_was_held_up_moves_it_by_half_at_most) {
  StepCost cost(2);
  cost.observe(2, 0, 1000);
  cost.observe(2, 8, 1800);
  for (int i = 0; i < 20; ++i) cost.observe(2, 8, 1800);
  CHECK(is_near(cost.prompt_token_us(), 100, 0.01));
  cost.observe(2, 8, 900'000);
  CHECK(cost.prompt_token_us() <= 150.0);
  cost.observe(2, 0, 900'000);
  CHECK(cost.decode_us(2) <= 1500.0);
  for (int i = 0; i < 12; ++i) cost.observe(2, 0, 1000);
  for (int i = 0; i < 12; ++i) cost.observe(2, 8, 1800);
  CHECK(is_near(cost.prompt_token_us(), 100, 0.1));
}

// The last token of kept prompts beside streams, and steps that are now and then shorter than is
// known: nobody may think that a prompt costs nothing.
TEST(what_is_lost_in_a_steps_own_noise_is_not_taken_for_nothing) {
  StepCost cost(4);
  cost.observe(0, 16, 40'000);
  cost.observe(3, 0, 20'000);
  for (int i = 0; i < 50; ++i) cost.observe(3, 1, 19'000);
  CHECK(cost.most_us(1, 3) >= 1000);
  CHECK(cost.most_us(16, 3) >= 20'000);
  CHECK(cost.prompt_token_us() >= 1000);
  // Nor does it change what is known.
  for (int i = 0; i < 20; ++i) cost.observe(3, 64, 180'000);
  CHECK(is_near(cost.most_us(64, 3), 160'000, 0.01));
  CHECK(is_near(cost.prompt_token_us(), 2500, 0.01));
  for (int i = 0; i < 50; ++i) cost.observe(3, 1, 19'000);
  CHECK(is_near(cost.most_us(64, 3), 160'000, 0.01));
  CHECK(is_near(cost.prompt_token_us(), 2500, 0.01));
}

// Many that cost next to nothing do so all the same.
TEST(many_tokens_that_cost_little_are_known_to) {
  StepCost cost(1);
  cost.observe(1, 0, 2000);
  for (int i = 0; i < 40; ++i) cost.observe(1, 256, 2100);
  CHECK(cost.most_us(256, 1) <= 250);
  CHECK(cost.prompt_token_us() <= 1.0);
}

// Every step is up to a fifth longer, and one in fifty takes ten times as long.
TEST(noise_does_not_lead_it_astray) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    StepCost cost(8);
    for (int i = 0; i < 2000; ++i) {
      const auto n_decoding = static_cast<std::int32_t>(1 + random() % 8);
      const std::int32_t n_prompt = random() % 2 == 0 ? 0 : static_cast<int>(1 + random() % 64);
      double us = 1000.0 + 100.0 * n_decoding + 200.0 * n_prompt;
      us *= 1.0 + static_cast<double>(random() % 200) / 1000.0;
      if (random() % 50 == 0) us *= 10;
      cost.observe(n_decoding, n_prompt, static_cast<std::int64_t>(us));
    }
    CHECK(cost.prompt_token_us() > 100 && cost.prompt_token_us() < 500);
    for (std::int32_t n = 1; n <= 8; ++n) {
      CHECK(cost.decode_us(n) > 900 && cost.decode_us(n) < 4000);
    }
  }
}

TEST(it_follows_a_machine_that_becomes_slower_or_faster) {
  StepCost cost(1);
  cost.observe(1, 0, 1000);
  for (int i = 0; i < 20; ++i) cost.observe(1, 10, 2000);
  for (int i = 0; i < 40; ++i) cost.observe(1, 10, 9000);
  CHECK(is_near(cost.prompt_token_us(), 800, 0.01));
  for (int i = 0; i < 60; ++i) cost.observe(1, 10, 1500);
  CHECK(is_near(cost.prompt_token_us(), 50, 0.05));
}

}  // namespace
}  // namespace step_cost_test
