// Where a request's prefix lies in cells that it can share.
#pragma once

#include <cstdint>

#include "kept/cell_store.h"
#include "slots/slot.h"

namespace unpaced {

struct PrefixSource {
  const Slot* slot = nullptr;  // null: it is parked, or there is none
  RequestId id = 0;            // the slot's request; 0: it is idle
  std::int32_t ticket = CellStore::kNoTicket;
  std::int32_t n = 0;  // tokens
};

}  // namespace unpaced
