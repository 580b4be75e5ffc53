// When to look for the GPU's next token: not before it is expected, then often.
#pragma once

#include <chrono>

namespace unpaced {

// Decode thread only. It never sees when a token comes, only whether one was there when it looked.
// A look costs a sleep and a wake-up, some 10 us of CPU, so one look a token is what it aims at: as
// long as the token is there, the next look comes a little earlier in its step, by half as much
// again each time; once it is not there, the next looks go by when it came. So a token waits for a
// fraction of `patience()` on average, and few looks are in vain.
class StepPacer {
 public:
  using Clock = std::chrono::steady_clock;

  // Has the kernel wake this thread when it says, not up to 50 us later.
  StepPacer();

  // The GPU was given steps to make.
  void launched(Clock::time_point now) noexcept;
  // The look at hand, or one without a nap, found n tokens, at least one, or the end of the steps.
  void arrived(Clock::time_point now, int n) noexcept;
  // When to look next. Each call is one look; if the token is not there, call it again.
  [[nodiscard]] Clock::time_point next_look() noexcept;
  // The look that next_look() gave was not made: it comes next again.
  void put_back() noexcept;

  // From the last token or launch to the look at hand.
  [[nodiscard]] Clock::duration silence() const noexcept { return look_ - last_; }

 private:
  using Duration = Clock::duration;

  struct Wait {
    Duration expected = std::chrono::microseconds(200);  // from last_ to the token
    Duration lead{};                                     // how much earlier than expected to look
  };

  // For the next token. The first one after a launch has the launch in it: its time is learnt by
  // itself, or the looks in vain for others would keep those for it from coming earlier.
  [[nodiscard]] Wait& wait() noexcept { return is_first_ ? first_wait_ : step_wait_; }
  // Between the looks for a token that is late.
  [[nodiscard]] Duration patience() noexcept;
  // The look at hand found the token, and the next one for one like it comes earlier; unless this
  // one has made others in vain. least, most: parts of what is expected that the lead may be.
  void look_earlier(Wait& wait, Duration by, int least, int most) const noexcept;
  // By how much longer a step is than expected.
  [[nodiscard]] static Duration error_of(Duration expected, Duration step) noexcept;
  // n tokens took `step` each.
  static void learn(Duration& expected, Duration step, int n) noexcept;

  Clock::time_point last_ = Clock::now();  // the look that found the last token, or the launch
  Clock::time_point look_ = last_;
  Clock::time_point next_ = last_;
  int n_looks_ = 0;       // for the next token
  bool is_lost_ = false;  // last_ is not when a token came
  bool is_first_ = true;  // no token has come since the last launch
  Wait step_wait_;
  Wait first_wait_;
};

}  // namespace unpaced
