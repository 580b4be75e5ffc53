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
  CellClaim claim{.slot = slot.id, .sequence = slot.sequence, .n_held = slot.n_cells()};
  if (!slot.active()) return claim;
  claim.id = slot.spec->id;
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
    const bool is_full = slot.n_cells() + 1 >= n_ctx();
    if (slot.phase == SlotPhase::kDecode && !is_held(slot) && is_full && model_->shifts_context()) {
      shift_context(slot, slots);
    }
  }
  for (const Slot& slot : slots) {
    if (!slot.is_free()) claims_.push_back(claim_of(slot));
  }
  std::ranges::sort(claims_, {}, &CellClaim::id);
  if (!shares_cells_) return;
  // Idle slots and parked cells are as good as free: see decode().
  const auto n_decoding = static_cast<std::int32_t>(std::ranges::count_if(
      claims_, [](const CellClaim& c) { return c.kind == CellClaim::Kind::kDecode; }));
  allot_cells(claims_,
              {.n_cells = cells_.n_cells(),
               .n_chunk = n_chunk_,
               .n_beside = prefill_.n_beside(std::max(1, n_decoding))},
              &cells_.index());
  for (const CellClaim& claim : claims_) {
    Slot& slot = slots[static_cast<std::size_t>(claim.slot)];
    if (claim.yields) give_up_cells(slot, claim.n_held);
    goes_[static_cast<std::size_t>(slot.id)] = claim.goes;
    const bool waits = !claim.goes && claim.kind != CellClaim::Kind::kStill;
    if (waits && !prefill_of(slot).waits) counters_.n_cell_waits.add(1);
    prefill_of(slot).waits = waits;
    note_wait(slot.waits, waits);
  }
}

void HostStepper::give_up_cells(Slot& slot, std::int32_t n_keep) {
  if (n_keep >= slot.n_cells()) return;
  Prefill& prefill = prefill_of(slot);
  counters_.n_cells_yielded.add(static_cast<std::uint64_t>(slot.n_cells() - n_keep));
  if (slot.phase == SlotPhase::kDecode) {
    prefill.recompute = slot.cells;
    slot.phase = SlotPhase::kRecompute;
    prefill_.resume(slot.id);
  } else if (slot.phase == SlotPhase::kPrefill) {
    prefill.n_cached = std::min(prefill.n_cached, n_keep);
  }
  if (n_keep == 0) return forget(slot);
  llama_memory_seq_rm(llama_get_memory(model_->context()), slot.sequence, n_keep, -1);
  cells_.note_cut(slot, n_keep);
  slot.cells.resize(static_cast<std::size_t>(n_keep));
}

void HostStepper::own_cells_beyond(Slot& slot, std::int32_t n, std::span<Slot> slots) {
  cells_.unpark_beyond(slot, n);
  const auto has_more = [&](const Slot& other) {
    return &other != &slot && cells_.index().n_common(slot.sequence, other.sequence) > n;
  };
  for (Slot& other : slots) {
    if (other.is_free() && has_more(other)) forget(other);
  }
  const std::int32_t n_shared = cells_.index().n_shared(slot.sequence);
  if (n_shared <= n || cells_.make_own(slot, n, n_shared)) return;
  while (cells_.give_way() || purge_idle(slots)) {
    if (cells_.make_own(slot, n, n_shared)) return;
  }
  // There is no room for a copy: the others compute theirs anew.
  for (Slot& other : slots) {
    if (has_more(other)) give_up_cells(other, n);
  }
}

bool HostStepper::purge_idle(std::span<Slot> slots) {
  Slot* oldest = nullptr;
  for (Slot& slot : slots) {
    if (!slot.is_free() || slot.cells.empty()) continue;
    if (oldest == nullptr || slot.last_used_step < oldest->last_used_step) oldest = &slot;
  }
  if (oldest != nullptr) forget(*oldest);
  return oldest != nullptr;
}

}  // namespace unpaced
