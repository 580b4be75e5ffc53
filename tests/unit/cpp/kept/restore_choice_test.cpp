// Whether a kept prompt is copied or computed: as rules, and in simulations of machines that
// change.
#include "kept/restore_choice.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "check.h"

namespace restore_choice_test {
namespace {

using unpaced::RestoreChoice;
using unpaced::RestoreOffer;
using unpaced::StatePart;
using Way = RestoreChoice::Way;

std::vector<StatePart> parts_of(const std::vector<std::int32_t>& sizes) {
  std::vector<StatePart> parts(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) parts[i].n_cells = sizes[i];
  return parts;
}

// As often as it takes to be believed.
RestoreChoice learned(std::int32_t n, double us) {
  RestoreChoice choice;
  for (int i = 0; i < 4; ++i) choice.observe(n, us);
  return choice;
}

// --- rules -----------------------------------------------------------------------------------

TEST(where_nothing_is_known_it_copies) {
  RestoreChoice choice;
  CHECK_EQ(choice.copy_us(parts_of({512, 512}), 1000, {}), 0.0);
  CHECK(choice.choose({.copy_us = 0, .compute_us = 10}) == Way::kCopy);
  CHECK(choice.choose({.copy_us = 1e9}) == Way::kCopy);
}

TEST(one_part_that_was_held_up_says_nothing) {
  RestoreChoice choice;
  for (int i = 0; i < 3; ++i) choice.observe(1, 1e6);
  CHECK_EQ(choice.copy_us(parts_of({512, 512}), 1000, {}), 0.0);
  choice.observe(1, 1e6);
  CHECK_EQ(choice.copy_us(parts_of({512, 512}), 1000, {}), 2e6);
}

TEST(whole_parts_are_copied_and_no_more_than_are_of_use) {
  RestoreChoice choice = learned(512, 1000);
  choice.observe(100, 300);
  const std::vector<StatePart> parts = parts_of({512, 512, 100});
  CHECK_EQ(choice.copy_us(parts, 1, {}), 1000.0);
  CHECK_EQ(choice.copy_us(parts, 513, {}), 2000.0);
  CHECK_EQ(choice.copy_us(parts, 1124, {}), 2300.0);
}

// Who decodes has its step between two turns, and none behind the last one.
TEST(the_steps_of_others_count_between_turns) {
  const RestoreChoice choice = learned(512, 1000);
  const std::vector<StatePart> parts = parts_of({512, 512, 512, 512, 512});
  CHECK_EQ(choice.copy_us(parts, 2560, {.turn_us = 3000, .step_us = 500}), 5500.0);
  CHECK_EQ(choice.copy_us(parts, 1024, {.turn_us = 3000, .step_us = 500}), 2000.0);
  CHECK_EQ(choice.copy_us(parts, 2560, {.turn_us = 0, .step_us = 500}), 7000.0);
  CHECK_EQ(choice.copy_us(parts, 512, {.turn_us = 100, .step_us = 500}), 1000.0);
}

TEST(it_takes_what_is_clearly_quicker) {
  RestoreChoice choice;
  CHECK(choice.choose({.copy_us = 100, .compute_us = 300}) == Way::kCopy);
  CHECK(choice.choose({.copy_us = 300, .compute_us = 100}) == Way::kCompute);
  CHECK(choice.choose({.copy_us = 100, .compute_us = 300}) == Way::kCopy);
}

TEST(about_as_long_changes_no_mind) {
  RestoreChoice choice;
  const RestoreOffer longer{.copy_us = 110, .compute_us = 100};
  const RestoreOffer shorter{.copy_us = 90, .compute_us = 100};
  CHECK(choice.choose(longer) == Way::kCopy);
  CHECK(choice.goes_on(longer));
  CHECK(choice.choose({.copy_us = 200, .compute_us = 100}) == Way::kCompute);
  CHECK(choice.choose(shorter) == Way::kCompute);
  CHECK(choice.choose({.copy_us = 50, .compute_us = 100}) == Way::kCopy);
}

TEST(a_part_is_tried_now_and_then_where_computing_pays_for_it) {
  RestoreChoice choice;
  const RestoreOffer offer{.copy_us = 1000, .compute_us = 160, .first_us = 100};
  for (int round = 0; round < 3; ++round) {
    // A sixteenth of ten times 160.
    for (int i = 0; i < 9; ++i) CHECK(choice.choose(offer) == Way::kCompute);
    CHECK(choice.choose(offer) == Way::kTry);
  }
}

TEST(a_part_that_is_no_gain_is_never_tried) {
  RestoreChoice choice;
  const double never = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 1000; ++i) {
    CHECK(choice.choose({.copy_us = 1000, .compute_us = 160, .first_us = never}) == Way::kCompute);
  }
}

// --- properties ------------------------------------------------------------------------------

// A machine whose costs are so much for each time and so much for each; noise makes them longer.
class Machine {
 public:
  struct Cost {
    double fixed_us;
    double each_us;
  };

  Machine(Cost copy, Cost compute, std::uint32_t seed)
      : copy(copy), compute(compute), random_(seed) {}

  // A prompt of so many tokens, all kept; returns what it took, and what each way would have.
  struct Outcome {
    double us = 0;
    double copy_us = 0;
    double compute_us = 0;
    bool is_copied = false;
    bool is_tried = false;
  };
  Outcome serve(RestoreChoice& choice, std::int32_t n) {
    std::vector<std::int32_t> sizes;
    for (std::int32_t left = n; left > 0; left -= 512) sizes.push_back(std::min(left, 512));
    const std::vector<StatePart> parts = parts_of(sizes);
    Outcome outcome;
    outcome.compute_us = of(compute, n);
    for (const std::int32_t size : sizes) outcome.copy_us += of(copy, size);
    RestoreOffer offer{.copy_us = choice.copy_us(parts, n, {}), .compute_us = outcome.compute_us};
    offer.first_us = choice.copy_us(parts, std::min(n, 512), {}) - of(compute, std::min(n, 512));
    const Way way = choice.choose(offer);
    outcome.is_tried = way == Way::kTry;
    std::int32_t n_left = n;
    for (std::size_t i = 0; way != Way::kCompute && i < parts.size(); ++i) {
      const RestoreOffer rest{.copy_us = choice.copy_us(std::span(parts).subspan(i), n_left, {}),
                              .compute_us = of(compute, n_left)};
      if (i > 0 && !choice.goes_on(rest)) break;
      const double us = of(copy, sizes[i]) * noise();
      choice.observe(sizes[i], us);
      outcome.us += us;
      n_left -= sizes[i];
    }
    if (n_left > 0) outcome.us += of(compute, n_left);
    outcome.is_copied = n_left == 0;
    return outcome;
  }
  std::int32_t any_size() { return static_cast<std::int32_t>(20 + random_() % 4000); }

  Cost copy;
  Cost compute;

 private:
  static double of(const Cost& cost, std::int32_t n) { return cost.fixed_us + cost.each_us * n; }
  double noise() { return 1.0 + static_cast<double>(random_() % 200) / 1000.0; }

  std::mt19937 random_;
};

double cost_of(std::mt19937& random, double least, double factor) {
  return least * std::pow(factor, static_cast<double>(random() % 1000) / 1000.0);
}

// Whatever the costs are: little longer than the better of the two ways, after what it takes to
// learn them.
TEST(it_takes_little_longer_than_the_better_way) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Machine machine({cost_of(random, 5, 1000), cost_of(random, 0.1, 1000)},
                    {cost_of(random, 50, 1000), cost_of(random, 0.5, 1000)}, seed);
    RestoreChoice choice;
    for (int i = 0; i < 20; ++i) machine.serve(choice, machine.any_size());
    double us = 0;
    double best_us = 0;
    for (int i = 0; i < 500; ++i) {
      const Machine::Outcome outcome = machine.serve(choice, machine.any_size());
      us += outcome.us;
      best_us += std::min(outcome.copy_us, outcome.compute_us);
    }
    CHECK(us <= 1.5 * best_us);
  }
}

// However slow copies are: all that is spent on looking is a sixteenth of what computing takes, and
// one part.
TEST(looking_costs_little_however_slow_copies_are) {
  for (const double factor : {2.0, 10.0, 1000.0, 100'000.0}) {
    Machine machine({50, 10 * factor}, {50, 10}, 1);
    RestoreChoice choice;
    for (int i = 0; i < 5; ++i) machine.serve(choice, machine.any_size());
    double us = 0;
    double compute_us = 0;
    for (int i = 0; i < 2000; ++i) {
      const Machine::Outcome outcome = machine.serve(choice, machine.any_size());
      us += outcome.us;
      compute_us += outcome.compute_us;
    }
    CHECK(us <= 1.1 * compute_us + 1.2 * (50 + 512 * 10 * factor));
  }
}

TEST(it_finds_out_that_copies_have_become_quicker) {
  for (const double factor : {3.0, 10.0, 100.0}) {
    Machine machine({50, 10 * factor}, {50, 10}, 2);
    RestoreChoice choice;
    for (int i = 0; i < 100; ++i) machine.serve(choice, machine.any_size());
    CHECK(!machine.serve(choice, 2000).is_copied);
    machine.copy.each_us = 0.5;
    int n = 0;
    while (!machine.serve(choice, machine.any_size()).is_copied) REQUIRE(++n < 5000);
    for (int i = 0; i < 50; ++i) machine.serve(choice, machine.any_size());
    for (int i = 0; i < 100; ++i) CHECK(machine.serve(choice, machine.any_size()).is_copied);
  }
}

TEST(it_finds_out_that_copies_have_become_slower) {
  Machine machine({50, 0.5}, {50, 10}, 3);
  RestoreChoice choice;
  for (int i = 0; i < 100; ++i) CHECK(machine.serve(choice, machine.any_size()).is_copied);
  machine.copy.each_us = 100;
  for (int i = 0; i < 40; ++i) machine.serve(choice, machine.any_size());
  for (int i = 0; i < 50; ++i) CHECK(!machine.serve(choice, 2000).is_copied);
}

// Costs that are equal but for the noise: it does not go back and forth.
TEST(it_does_not_flap) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    Machine machine({0, 10}, {0, 10}, seed);
    RestoreChoice choice;
    int n_changes = 0;
    bool was_copied = true;
    for (int i = 0; i < 1000; ++i) {
      const Machine::Outcome outcome = machine.serve(choice, 1500);
      if (outcome.is_tried) continue;
      if (outcome.is_copied != was_copied) ++n_changes;
      was_copied = outcome.is_copied;
    }
    CHECK(n_changes <= 1);
  }
}

}  // namespace
}  // namespace restore_choice_test
