// Which slots compute in HostStepper's step: all of them, unless they share the KV cells and there
// are too few.
#include <algorithm>

#include "decode/event_publisher.h"
#include "host/host_stepper.h"

namespace unpaced {
namespace {

// Looks at the clock only where a wait begins or ends.
void note_wait(SlotWaits& waits, bool is_waiting) noexcept {
  const bool was_waiting = waits.cells_since_us > 0;
  if (is_waiting == was_waiting) return;
  const std::int64_t now_us = steady_us();
  if (was_waiting) waits.cells_us += now_us - waits.cells_since_us;
  waits.cells_since_us = is_waiting ? now_us : 0;
}

}  // namespace

CellClaim HostStepper::claim_of(const Slot& slot) noexcept {
  // What a slot action moves stays until it is done: a request waits for its cells.
  if (!slot.active()) return {.slot = slot.id, .n_held = slot.n_cells()};
  CellClaim claim{.id = slot.spec->id, .slot = slot.id, .n_held = slot.n_cells()};
  if (!slot.steps() || is_held(slot)) return claim;
  if (slot.phase == SlotPhase::kDecode) {
    claim.kind = CellClaim::Kind::kDecode;
  } else {
    claim.kind = CellClaim::Kind::kPrefill;
    claim.n_missing = static_cast<std::int32_t>(known_tokens(slot).size()) - slot.n_cells();
  }
  return claim;
}

void HostStepper::allot(std::span<Slot> slots) {
  claims_.clear();
  for (Slot& slot : slots) {
    if (slot.is_free()) continue;
    const bool is_full = slot.n_cells() + 1 >= n_ctx();
    if (slot.phase == SlotPhase::kDecode && !is_held(slot) && is_full && model_->shifts_context()) {
      shift_context(slot);
    }
    claims_.push_back(claim_of(slot));
  }
  std::ranges::sort(claims_, {}, &CellClaim::id);
  if (!shares_cells_) return;
  // Idle slots and parked cells are as good as free: see decode().
  allot_cells(claims_, cells_.n_cells(), n_chunk_);
  for (const CellClaim& claim : claims_) {
    Slot& slot = slots[static_cast<std::size_t>(claim.slot)];
    if (claim.yields) give_up_cells(slot);
    goes_[static_cast<std::size_t>(slot.id)] = claim.goes;
    const bool waits = !claim.goes && claim.kind != CellClaim::Kind::kStill;
    if (waits && !prefill_of(slot).waits) counters_.n_cell_waits.add(1);
    prefill_of(slot).waits = waits;
    note_wait(slot.waits, waits);
  }
}

void HostStepper::give_up_cells(Slot& slot) {
  Prefill& prefill = prefill_of(slot);
  counters_.n_cells_yielded.add(static_cast<std::uint64_t>(slot.n_cells()));
  if (slot.phase == SlotPhase::kDecode) {
    prefill.recompute = slot.cells;
    slot.phase = SlotPhase::kRecompute;
  } else {
    prefill.n_cached = 0;
  }
  forget(slot);
}

}  // namespace unpaced
