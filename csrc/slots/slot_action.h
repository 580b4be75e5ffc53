// What is asked of a slot outside any request: copy its state out, put one in, forget it. Built by
// the front end and on loan to the decode thread from its kSlotAction command to its kFinished
// event.
#pragma once

#include <cstdint>

#include "request/records.h"
#include "slots/slot_state.h"

namespace unpaced {

enum class SlotActionKind : std::uint8_t { kCopy = 0, kRestore, kErase };

struct SlotAction {
  RequestId id = 0;
  SlotActionKind kind = SlotActionKind::kCopy;
  std::int32_t slot = 0;
  SlotState state;               // kCopy: filled by the decode thread; kRestore: what it puts in
  CacheDomain cache_domain = 0;  // kRestore: whose requests may reuse the state
  std::int32_t n_tokens = 0;     // result: tokens copied, restored or erased
  bool succeeded = false;        // result
};

}  // namespace unpaced
