// What a stepper looks at while it waits for a device. Decode thread only.
#pragma once

#include <chrono>

namespace unpaced {

class Interruption {
 public:
  Interruption() = default;
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  virtual ~Interruption() = default;

  // Somebody wants the loop: a step that only waits should return.
  [[nodiscard]] virtual bool is_pending() const noexcept = 0;
  // Sleeps until then. False: it was woken before, as by what is pending.
  virtual bool nap_until(std::chrono::steady_clock::time_point when) noexcept = 0;
};

}  // namespace unpaced
