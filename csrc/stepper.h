// How tokens are made: the seam between the decode thread's loop and a backend. HostStepper calls
// llama_decode and samples on the CPU, for every backend and model; a DeviceStepper runs the loop
// on the GPU.
#pragma once

#include <cstdint>
#include <span>

#include "event_publisher.h"
#include "slot.h"

namespace unpaced {

// Every method: decode thread only.
class Stepper {
 public:
  Stepper() = default;
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  virtual ~Stepper() = default;

  // Cells a slot has.
  [[nodiscard]] virtual std::int32_t n_ctx() const noexcept = 0;

  // The request in slot.spec takes its seat: keeps the cells it can reuse, drops the others, seeds
  // its sampler. Returns the number of prompt tokens already in the KV (< prompt.size()).
  virtual std::int32_t begin(Slot& slot) = 0;

  // One turn: every active slot decodes one token or prefills one chunk. Publishes what happened,
  // and ends requests (EOG, token limit, context limit, errors). Returns between chunks, so that
  // the loop can look for commands.
  virtual void step(std::span<Slot> slots, EventPublisher& events) = 0;

  // Slots, KV and events are up to date with all work after this: call it before a request is begun
  // or ended from outside. A stepper that works ahead of the slots stops and publishes here, which
  // may end requests.
  virtual void settle(EventPublisher& events) { static_cast<void>(events); }

  // The slot's KV is of no use any more (an error left it in doubt).
  virtual void forget(Slot& slot) noexcept = 0;
};

}  // namespace unpaced
