#include "device/step_pacer.h"

#include <sys/prctl.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace unpaced {
namespace {

constexpr std::chrono::microseconds kShortNap{20};
// Longer than a step of any model that fits one GPU, and short where the GPU says nothing any more.
constexpr std::chrono::milliseconds kLongestNap{20};

}  // namespace

StepPacer::StepPacer() {
  // The kernel rounds sleeps up by 50 us by default: a twentieth of a small model's step.
  constexpr unsigned long kSlackNs = 1000;
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
}

void StepPacer::arrived(int n) noexcept {
  const auto now = Clock::now();
  const auto step = (now - last_) / std::max(n, 1);
  // The first step after a launch has the launch in it, which would have the others looked for
  // late.
  const int weight = std::exchange(is_first_, false) ? 64 : 8;
  step_ += (std::chrono::duration_cast<std::chrono::nanoseconds>(step) - step_) / weight;
  last_ = now;
}

void StepPacer::nap() const noexcept {
  const auto now = Clock::now();
  // Each nap costs a switch of 10 us; steps vary by a few percent. Oversleeping delays the client's
  // token by as much, and the GPU not at all.
  const auto soon = last_ + step_ - step_ / 64;
  const auto shortest = std::max<std::chrono::nanoseconds>(kShortNap, step_ / 64);
  const auto wanted = std::clamp<std::chrono::nanoseconds>(soon - now, shortest, kLongestNap);
  std::this_thread::sleep_for(wanted);
}

std::chrono::milliseconds StepPacer::silence() const noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_);
}

}  // namespace unpaced
