// StepPacer against a GPU that is made up: how often it looks, and how late it sees a token.
#include "device/loop/step_pacer.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"

namespace step_pacer_test {
namespace {

using namespace std::chrono_literals;
using unpaced::StepPacer;
using Time = StepPacer::Clock::time_point;
using Micros = std::chrono::duration<double, std::micro>;

// Steps follow one another; a thread that sleeps wakes up late.
struct Machine {
  Micros step;
  double jitter = 0;        // standard deviation of a step, as a part of it
  Micros wake_latency{10};  // mean; it is exponentially distributed
  Micros launch_time{0};    // where every step is launched by itself
  std::mt19937 random{1};   // NOLINT: always the same machine

  Micros next_step() {
    return step * std::max(0.5, 1 + jitter * std::normal_distribution<double>()(random));
  }
  Micros next_latency() { return wake_latency * std::exponential_distribution<double>(1)(random); }
};

struct Run {
  double looks;         // a token
  double late_mean_us;  // from the token to the look that saw it
  double late_p99_us;
  std::vector<double> late_us;
};

StepPacer::Clock::duration rounded(Micros time) {
  return std::chrono::duration_cast<StepPacer::Clock::duration>(time);
}

class Simulation {
 public:
  explicit Simulation(Machine machine) : machine_(machine) {}

  Machine& machine() noexcept { return machine_; }
  // The GPU begins to make steps.
  void launch() {
    pacer_.launched(now_);
    token_ = now_ + rounded(machine_.launch_time + machine_.next_step());
  }
  void next_token_takes(Micros time) { token_ = now_ + rounded(time); }
  // This thread does not run for a while.
  void stall(Micros time) { now_ += rounded(time); }

  Run run(int n_tokens) {
    Run run{};
    int n_looks = 0;
    while (static_cast<int>(run.late_us.size()) < n_tokens) {
      int n = 0;
      for (; token_ <= now_; ++n) {
        run.late_us.push_back(Micros(now_ - token_).count());
        token_ += rounded(machine_.next_step());
      }
      if (n > 0) {
        pacer_.arrived(now_, n);
        now_ += 5us;  // the token is published
        if (machine_.launch_time.count() > 0) launch();
        continue;
      }
      now_ = std::max(now_ + 1us, pacer_.next_look() + rounded(machine_.next_latency()));
      ++n_looks;
    }
    std::vector<double> sorted = run.late_us;
    std::sort(sorted.begin(), sorted.end());
    for (const double late : sorted) run.late_mean_us += late / static_cast<double>(sorted.size());
    run.late_p99_us = sorted[sorted.size() * 99 / 100];
    run.looks = static_cast<double>(n_looks) / static_cast<double>(sorted.size());
    return run;
  }

 private:
  Machine machine_;
  StepPacer pacer_;
  Time now_{1s};
  Time token_{};
};

// After it has found out about the machine.
Run settled(Machine machine, int n_tokens = 4000) {
  Simulation simulation(machine);
  simulation.launch();
  static_cast<void>(simulation.run(100));
  return simulation.run(n_tokens);
}

void print(const char* what, const Run& run) {
  std::printf("%s: %.2f looks a token, %.0f us late, p99 %.0f us\n", what, run.looks,
              run.late_mean_us, run.late_p99_us);
}

TEST(steady_steps_take_little_more_than_one_look) {
  for (const double step_us : {300.0, 1000.0, 3600.0, 20000.0, 60000.0}) {
    const Run run = settled({.step = Micros(step_us)});
    print(std::to_string(step_us).c_str(), run);
    CHECK(run.looks < 1.4);
    CHECK(run.late_p99_us < std::max(20.0, step_us / 64) + 100);
  }
}

TEST(a_few_percent_of_jitter_cost_two_looks) {
  for (const double jitter : {0.002, 0.005, 0.01, 0.02, 0.04}) {
    const Run run = settled({.step = 3600us, .jitter = jitter});
    print(std::to_string(jitter).c_str(), run);
    CHECK(run.looks < 3);
    CHECK(run.late_mean_us < 3600.0 / 64 + 10 + 2 * 3600 * jitter);
  }
}

TEST(steps_of_a_launch_each_are_followed) {
  const Run run = settled({.step = 3600us, .jitter = 0.002, .launch_time = 100us});
  print("launches", run);
  CHECK(run.looks < 2);
  CHECK(run.late_p99_us < 3600.0 / 64 + 100);
}

TEST(what_a_launch_takes_is_at_least_a_step) {
  Simulation simulation({.step = 3600us});
  simulation.launch();
  static_cast<void>(simulation.run(100));
  simulation.launch();
  const Run run = simulation.run(1);
  CHECK(run.looks < 5);
}

TEST(a_slow_launch_is_forgotten_beside_other_steps) {
  Simulation simulation({.step = 650us, .jitter = 0.002});
  // The loop is left after two tokens, the second of which has waited for something.
  const auto fly = [&](Micros launch_time) {
    simulation.launch();
    simulation.next_token_takes(650us + launch_time);
    const double late_us = simulation.run(1).late_us.front();
    simulation.next_token_takes(950us);
    static_cast<void>(simulation.run(1));
    return late_us;
  };
  for (int i = 0; i < 20; ++i) fly(1500us);
  double late_us = 0;
  for (int i = 0; i < 30; ++i) late_us = fly(100us);
  CHECK(late_us < 200);
}

TEST(short_steps_are_found_out_though_the_loop_is_left_after_two) {
  Simulation simulation({.step = 3300us, .jitter = 0.002});
  simulation.launch();
  static_cast<void>(simulation.run(40));
  simulation.machine().step = 950us;
  double late_us = 0;
  for (int i = 0; i < 10; ++i) {
    simulation.launch();
    simulation.next_token_takes(750us);
    late_us = simulation.run(2).late_us.front();
  }
  CHECK(late_us < 600);
}

TEST(slow_wake_ups_cost_what_they_take) {
  for (const double step_us : {1444.0, 2038.0, 2500.0, 6400.0}) {
    for (const double wake_us : {40.0, 80.0}) {
      const Run run = settled(
          {.step = Micros(step_us), .jitter = 0.002, .wake_latency = Micros(wake_us)}, 20'000);
      print((std::to_string(step_us) + " wake-ups " + std::to_string(wake_us)).c_str(), run);
      CHECK(run.looks < 1.4);
      // One in a hundred of them takes 4.6 times the mean.
      CHECK(run.late_mean_us < wake_us + step_us / 64);
      CHECK(run.late_p99_us < 5 * wake_us + step_us / 64);
    }
  }
}

TEST(steps_shorter_than_ten_wake_ups_are_not_lost) {
  const Run run = settled({.step = 650us, .jitter = 0.002, .wake_latency = 40us}, 20'000);
  print("650 wake-ups 40", run);
  CHECK(run.looks < 1.4);
  CHECK(run.late_p99_us < 300);
}

TEST(the_length_of_a_step_is_found_out) {
  Simulation simulation({.step = 3600us});
  simulation.launch();
  const Run run = simulation.run(20);
  print("first tokens", run);
  CHECK(run.late_us.back() < 200);
  CHECK(run.looks < 60);
}

TEST(other_steps_are_followed) {
  Simulation simulation({.step = 3600us});
  simulation.launch();
  static_cast<void>(simulation.run(200));
  double before_us = 3600;
  for (const double step_us : {3660.0, 3600.0, 3900.0, 3500.0, 1800.0, 7200.0, 900.0}) {
    simulation.machine().step = Micros(step_us);
    const Run change = simulation.run(60);
    const Run after = simulation.run(400);
    print((std::to_string(step_us) + " change").c_str(), change);
    print((std::to_string(step_us) + " after").c_str(), after);
    // No later than a step of before.
    CHECK(*std::max_element(change.late_us.begin(), change.late_us.end()) < before_us + 200);
    before_us = step_us;
    CHECK(after.looks < 1.4);
    CHECK(after.late_p99_us < step_us / 64 + 100);
  }
}

TEST(a_thread_that_was_held_up_catches_up) {
  Simulation simulation({.step = 3600us});
  simulation.launch();
  static_cast<void>(simulation.run(200));
  simulation.stall(50ms);
  static_cast<void>(simulation.run(50));
  const Run after = simulation.run(200);
  print("after a stall", after);
  CHECK(after.looks < 1.4);
  CHECK(after.late_p99_us < 3600.0 / 64 + 100);
}

TEST(silence_lasts_from_the_last_token_to_the_look_at_hand) {
  StepPacer pacer;
  pacer.launched(Time(1s));
  Time look{};
  for (int i = 0; i < 100; ++i) look = pacer.next_look();
  CHECK(pacer.silence() == look - Time(1s));
  pacer.arrived(look, 1);
  CHECK(pacer.silence() < 1s);
}

}  // namespace
}  // namespace step_pacer_test
