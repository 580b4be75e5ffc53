// When to look for the GPU's next token: sleeps through most of a step, then looks often.
#pragma once

#include <chrono>

namespace unpaced {

// Decode thread only.
class StepPacer {
 public:
  StepPacer();

  void launched() noexcept {
    last_ = Clock::now();
    is_first_ = true;
  }
  // n tokens came since the last time.
  void arrived(int n) noexcept;
  // Sleeps until a token is worth looking for.
  void nap() const noexcept;
  // Since the last token or launch.
  [[nodiscard]] std::chrono::milliseconds silence() const noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point last_ = Clock::now();
  bool is_first_ = true;  // no token has come since the last launch
  std::chrono::nanoseconds step_{std::chrono::microseconds(200)};  // running mean of a step
};

}  // namespace unpaced
