// What happens to the slots' contents between requests: states go to host memory and come back, and
// the front end copies, restores and erases them. Decode thread only, between steps, when the
// stepper has settled.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "counters.h"
#include "prompt_cache.h"
#include "slot.h"
#include "slot_action.h"
#include "slot_choice.h"
#include "stepper.h"
#include "takeover.h"

namespace unpaced {

struct SlotKeeperOptions {
  std::int64_t cache_bytes_max = 0;  // -1: no limit, 0: no prompt cache
  bool cache_idle_slots = false;     // idle slots are copied there when another slot gets to work
  bool clear_idle_slots = false;     // and give up their cells: they share one KV
};

class SlotKeeper {
 public:
  SlotKeeper(const SlotKeeperOptions& options, Counters& counters)
      : options_(options), counters_(counters), cache_(options.cache_bytes_max) {}

  // Before choice.slot begins on `spec`.
  Takeover make_way(Stepper& stepper, std::span<Slot> slots, const SlotChoice& choice,
                    const RequestSpec& spec);
  // The action's slot is idle.
  static void act(Stepper& stepper, Slot& slot, SlotAction& action);

 private:
  // False: it was not worth it, or there is no memory for it.
  bool keep(Stepper& stepper, const Slot& slot);

  const SlotKeeperOptions options_;
  Counters& counters_;
  PromptCache cache_;
};

}  // namespace unpaced
