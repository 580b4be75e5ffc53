// How tokens are made: the seam between the decode thread's loop and a backend. HostStepper calls
// llama_decode and samples on the CPU, for every backend and model; a DeviceStepper runs the loop
// on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "decode/event_publisher.h"
#include "decode/interruption.h"
#include "kept/cell_store.h"
#include "slots/slot.h"
#include "slots/slot_state.h"

namespace unpaced {

// Every method: decode thread only. step(), begin(), settle(), forget(), use_idle_time() and what
// copies or restores states may throw EngineLost; no other exception harms more than the requests
// at hand.
class Stepper {
 public:
  Stepper() = default;
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;
  virtual ~Stepper() = default;

  // Cells a slot has.
  [[nodiscard]] virtual std::int32_t n_ctx() const noexcept = 0;

  // Once, before the first step: what may end a step's waiting. It outlives the stepper.
  virtual void attach(Interruption& interruption) { static_cast<void>(interruption); }

  // The request in slot.spec takes its seat: keeps the cells it can reuse, drops the others, seeds
  // its sampler. Returns the number of prompt tokens already in the KV (< prompt.size()).
  virtual std::int32_t begin(Slot& slot) = 0;

  // One turn: every active slot decodes one token or prefills one chunk. Publishes what happened,
  // and ends requests (EOG, token limit, context limit, errors). Returns between chunks, so that
  // the loop can look for commands; where it only waits, it returns as soon as there are some.
  virtual void step(std::span<Slot> slots, EventPublisher& events) = 0;

  // Slots, KV and events are up to date with all work after this: call it before a request is begun
  // or ended from outside. A stepper that works ahead of the slots stops and publishes here, which
  // may end requests.
  virtual void settle(EventPublisher& events) { static_cast<void>(events); }

  // Microseconds by which it takes longer to compute n tokens of one prompt than to compute n_rest
  // of them, beside so many slots that decode; at most, where that is not known. 0: nothing is.
  [[nodiscard]] virtual double prompt_us(std::int32_t n, std::int32_t n_rest,
                                         std::int32_t n_decoding) const noexcept {
    static_cast<void>(n);
    static_cast<void>(n_rest);
    static_cast<void>(n_decoding);
    return 0;
  }
  // Those of one step in which so many slots decode and so many prompt tokens wait, at least.
  [[nodiscard]] virtual double step_us(std::int32_t n_decoding,
                                       std::int32_t n_waiting) const noexcept {
    static_cast<void>(n_decoding);
    static_cast<void>(n_waiting);
    return 0;
  }

  // Nothing runs and nothing waits: does a piece, some 10 ms, of what makes later requests quicker.
  // False: there is none.
  virtual bool use_idle_time() { return false; }
  // Whether use_quiet_time() has something to do; asked once nothing runs or waits.
  [[nodiscard]] virtual bool wants_quiet_time() { return false; }
  // The same as use_idle_time(), once nothing has come for a while (kQuietUs): who asks again at
  // once does not wait for what only may be of use.
  virtual bool use_quiet_time() { return false; }

  // The slot's KV is of no use any more (an error left it in doubt).
  virtual void forget(Slot& slot) = 0;

  // Null: what a slot holds can only be copied and restored as a whole, as follows.
  [[nodiscard]] virtual CellStore* cell_store() noexcept { return nullptr; }

  // Of an idle slot, after settle(). Bytes of its state; 0: this stepper cannot copy it.
  [[nodiscard]] virtual std::size_t state_bytes(const Slot& slot) {
    static_cast<void>(slot);
    return 0;
  }
  // `to`: state_bytes(slot) bytes. False: it failed.
  [[nodiscard]] virtual bool copy_state(const Slot& slot, std::span<std::byte> to) {
    static_cast<void>(slot);
    static_cast<void>(to);
    return false;
  }
  // The state takes the place of all that the slot holds. False: it does not fit this model or the
  // free cells, and what the slot holds is in doubt.
  [[nodiscard]] virtual bool restore_state(Slot& slot, const SlotState& state) {
    static_cast<void>(slot);
    static_cast<void>(state);
    return false;
  }
};

}  // namespace unpaced
