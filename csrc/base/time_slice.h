// How soon the kernel lets a thread that wakes up take a core from one that computes.
#pragma once

#include <chrono>

namespace unpaced {

// Asks for turns of `slice` for the calling thread, not for threads it makes: it then takes over at
// once where it would have waited for the end of the other's turn (milliseconds), and gets no more
// time in all. Linux before 6.12 takes no notice. False if the kernel refused.
bool shorten_time_slice(std::chrono::nanoseconds slice) noexcept;

// What threads of the front end ask for: a request is read in it, and Linux gives others 1.4 ms and
// more.
inline constexpr std::chrono::microseconds kFrontEndSlice{1200};

// Asks for turns of 6 ms for a thread that computes (0: the calling one), twice others'.
// It gets no more time in all, but who wakes up on its core takes over at once, where it would have
// waited for up to a tick of the kernel's clock. Linux before 6.12 takes no notice. False if the
// kernel refused.
bool let_others_preempt(int thread) noexcept;

// For a thread that lets others preempt it: it sleeps in `wait`, takes its core at once where
// another process computes there when it wakes up, and then keeps it for a step.
template <typename Wait>
void begin_at_once_after(Wait wait) {
  shorten_time_slice(std::chrono::microseconds(300));  // Linux gives who does not ask 0.7 to 2.8 ms
  wait();
  let_others_preempt(0);
}

}  // namespace unpaced
