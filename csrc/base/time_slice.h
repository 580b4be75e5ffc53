// How soon the kernel lets a thread that wakes up take a core from one that computes.
#pragma once

#include <chrono>

namespace unpaced {

// Asks for turns of `slice` for the calling thread, not for threads it makes: it then takes over at
// once where it would have waited for the end of the other's turn (milliseconds), and gets no more
// time in all. Linux before 6.12 takes no notice. False if the kernel refused.
bool shorten_time_slice(std::chrono::nanoseconds slice) noexcept;

}  // namespace unpaced
