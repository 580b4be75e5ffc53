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
  // Wake-ups are late by what the machine takes for them, which the lead makes up for: the token
  // had come about when the look was to be. Where this thread was held up for much of a step, or
  // did not sleep, only the clock knows when the look was.
  Wait& wait = this->wait();
  const bool is_held = n_looks_ == 0 || now - look_ > wait.expected / 2;
  const auto found = is_held ? now : look_;
  if (is_first_) {
    // Launches are few, and looks in vain for their first tokens cost little; but a late one may
    // have the GPU wait.
    look_earlier(wait, wait.lead, 256, 2);
  } else {
    // So it takes some six tokens to use up the time that a token may have waited, and a few more
    // to follow a GPU that has become faster.
    look_earlier(wait, wait.lead / 2, 1024, 8);
  }
  const Duration step = (found - last_) / std::max(n, 1);
  if (is_held) {
    // What held it up is in the time, but a machine may hold up each look.
    wait.expected += error_of(wait.expected, step) / 32;
  } else if (!is_lost_ || n > 1) {
    learn(wait.expected, step, n);
  }
  if (is_first_) {
    wait.expected = std::min(wait.expected, step);
    // Steps are taken to be longer than they are: the loop is left again and again before there is
    // one to learn from.
    if (n > 1 && step < step_wait_.expected) learn(step_wait_.expected, step, n);
  }
  is_first_ = false;
  // When the last of several came is not known: the next one may come at any time.
  is_lost_ = n > 1;
  n_looks_ = 0;
  last_ = found;
  next_ = found + (is_lost_ ? patience() : step_wait_.expected - step_wait_.lead);
}

void StepPacer::look_earlier(Wait& wait, Duration by, int least, int most) const noexcept {
  const Duration lead = n_looks_ > 1 ? Duration::zero() : wait.lead + by;
  wait.lead = std::clamp<Duration>(lead, wait.expected / least, wait.expected / most);
}

StepPacer::Duration StepPacer::error_of(Duration expected, Duration step) noexcept {
  // What held everything up once is no step.
  return std::min(step, 2 * expected) - expected;
}

void StepPacer::learn(Duration& expected, Duration step, int n) noexcept {
  const Duration error = error_of(expected, step);
  if (std::chrono::abs(error) > expected / 8) {
    expected += error / 2;
  } else if (n == 1) {
    expected += error / 32;
  }
}

}  // namespace unpaced
