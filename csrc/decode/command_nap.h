// The decode thread's sleep within a step: a command or a stop ends it. Decode thread only.
#pragma once

#include <atomic>

#include "base/spsc_ring.h"
#include "base/wakeup.h"
#include "decode/interruption.h"
#include "request/records.h"

namespace unpaced {

class CommandNap final : public Interruption {
 public:
  CommandNap(const SpscRing<Command>& commands, Wakeup& wakeup,
             const std::atomic<bool>& stop) noexcept
      : commands_(commands), wakeup_(wakeup), stop_(stop) {}

  [[nodiscard]] bool is_pending() const noexcept override {
    // acquire: pairs with DecodeThread::stop().
    return commands_.size_approx() > 0 || stop_.load(std::memory_order_acquire);
  }

  bool nap_until(std::chrono::steady_clock::time_point when) noexcept override {
    wakeup_.prepare_park();
    if (!is_pending()) return !wakeup_.wait_until(when);
    wakeup_.cancel_park();
    return false;
  }

 private:
  const SpscRing<Command>& commands_;
  Wakeup& wakeup_;
  const std::atomic<bool>& stop_;
};

}  // namespace unpaced
