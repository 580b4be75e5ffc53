#include "device/loop/step_pacer.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace unpaced {
namespace {

constexpr std::chrono::microseconds kShortNap{20};

}  // namespace

StepPacer::StepPacer() {
  constexpr unsigned long kSlackNs = 1000;
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
}

StepPacer::Duration StepPacer::patience() noexcept {
  return std::max<Duration>(kShortNap, wait().expected / 64);
}

void StepPacer::launched(Clock::time_point now) noexcept {
  is_first_ = true;
  is_lost_ = false;
  n_looks_ = 0;
  last_ = look_ = now;
  // A step is in it.
  first_wait_.expected = std::max(first_wait_.expected, step_wait_.expected);
  next_ = now + first_wait_.expected - first_wait_.lead;
}

StepPacer::Clock::time_point StepPacer::next_look() noexcept {
  look_ = std::exchange(next_, next_ + patience());
  ++n_looks_;
  return look_;
}

void StepPacer::put_back() noexcept {
  next_ = look_;
  --n_looks_;
}

void StepPacer::arrived(Clock::time_point now, int n) noexcept {
  // Wake-ups are late by what the machine takes for them, which the lead makes up for; but where
  // this thread was held up, or did not sleep, only the clock knows when the look was.
  const auto found = n_looks_ == 0 || now - look_ > 4 * patience() ? now : look_;
  // So it takes some six tokens to use up the time that a token may have waited, and a few more to
  // follow a GPU that has become faster.
  Wait& wait = this->wait();
  const Duration least = wait.expected / 1024;
  wait.lead = n_looks_ > 1
                  ? least
                  : std::clamp<Duration>(wait.lead + wait.lead / 2, least, wait.expected / 8);
  learn((found - last_) / std::max(n, 1), n);
  is_first_ = false;
  // When the last of several came is not known: the next one may come at any time.
  is_lost_ = n > 1;
  n_looks_ = 0;
  last_ = found;
  next_ = found + (is_lost_ ? patience() : step_wait_.expected - step_wait_.lead);
}

void StepPacer::learn(Duration step, int n) noexcept {
  if (is_lost_ && n == 1) return;
  Duration& expected = wait().expected;
  // What held everything up once is no step.
  const Duration error = std::min(step, 2 * expected) - expected;
  if (std::chrono::abs(error) > expected / 8) {
    expected += error / 2;
  } else if (n == 1) {
    expected += error / 32;
  }
}

}  // namespace unpaced
