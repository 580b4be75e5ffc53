#include "decode/state_mover.h"

#include <algorithm>
#include <new>
#include <utility>

namespace unpaced {

StateMover::StateMover(PartPool& pool, PartSize& size, std::int32_t n_slots)
    : pool_(pool), size_(size) {
  moves_.reserve(static_cast<std::size_t>(n_slots));
  done_.reserve(static_cast<std::size_t>(n_slots));
}

bool StateMover::begin(Stepper& stepper, CellStore& store, Slot& slot, SlotAction& action) {
  switch (action.kind) {
    case SlotActionKind::kCopy:
      return begin_copy(store, slot, action);
    case SlotActionKind::kRestore:
      return begin_restore(stepper, store, slot, action);
    case SlotActionKind::kErase:
      break;
  }
  return false;
}

bool StateMover::begin_copy(CellStore& store, Slot& slot, SlotAction& action) {
  if (slot.n_cells() < CellStore::kParkMin) return false;
  store.measure(slot);
  auto pieces = StatePieces::of(store.sample_state(slot), CellStore::kParkMin);
  const std::span<const std::uint32_t> rows = store.part_rows();
  if (!pieces || (!rows.empty() && !pieces->has_rows(rows))) return false;
  SlotState& state = action.state;
  const auto n_cells = static_cast<std::size_t>(slot.n_cells());
  state.allocate(pieces->n_bytes(n_cells));
  pieces->write_heads(state.bytes(), n_cells);
  state.tokens = slot.cells;
  state.lora_scales = slot.lora_scales;
  state.cache_domain = slot.cache_domain;
  moves_.push_back({.slot = &slot, .action = &action, .pieces = std::move(pieces)});
  slot.move = SlotMove::kOut;
  return true;
}

bool StateMover::begin_restore(Stepper& stepper, const CellStore& store, Slot& slot,
                               SlotAction& action) {
  const SlotState& state = action.state;
  const std::span<const std::uint32_t> rows = store.part_rows();
  if (!state.pieces || (!rows.empty() && !state.pieces->has_rows(rows))) return false;
  if (state.tokens.size() > static_cast<std::size_t>(stepper.n_ctx())) return false;
  stepper.forget(slot);
  moves_.push_back({.slot = &slot, .action = &action});
  slot.move = SlotMove::kIn;
  return true;
}

StateMover::Progress StateMover::advance(CellStore& store) {
  if (moves_.empty()) return Progress::kNone;
  try {
    return moves_.front().slot->move == SlotMove::kOut ? copy_next(store) : restore_next(store);
  } catch (const std::bad_alloc&) {
    return Progress::kStuck;
  }
}

StateMover::Progress StateMover::copy_next(CellStore& store) {
  Move& move = moves_.front();
  SlotState& state = move.action->state;
  const auto n_all = static_cast<std::int32_t>(state.tokens.size());
  if (move.slot->n_cells() != n_all) return Progress::kStuck;  // the cells were cleared
  const std::int64_t begin_us = steady_us();
  const std::int32_t n = std::min(size_.n(), n_all - move.n_copied);
  StatePart part = pool_.take(store.part_bytes(n), n);
  const bool is_copied = store.copy_part(move.slot->sequence, move.n_copied, n, part.bytes()) &&
                         move.pieces->put(part.bytes(), store.part_rows(), move.n_copied, n,
                                          move.slot->sequence, state.bytes(), state.tokens.size());
  pool_.put(std::move(part));
  if (!is_copied) return Progress::kStuck;
  size_.learn(n, steady_us() - begin_us, store.n_part_max());
  move.n_copied += n;
  if (move.n_copied == n_all) finish(true);
  return Progress::kMoved;
}

StateMover::Progress StateMover::restore_next(CellStore& store) {
  Slot& slot = *moves_.front().slot;
  const SlotState& state = moves_.front().action->state;
  const std::span<const std::uint32_t> rows = store.part_rows();
  const auto n_all = static_cast<std::int32_t>(state.tokens.size());
  if (slot.n_cells() >= CellStore::kParkMin) store.measure(slot);
  const std::int64_t begin_us = steady_us();
  const std::int32_t first = slot.n_cells();
  const std::int32_t n = std::min({size_.n(), store.n_part_max(), n_all - first});
  const auto n_part = static_cast<std::size_t>(n);
  StatePart part =
      pool_.take(rows.empty() ? state.pieces->n_bytes(n_part) : store.part_bytes(n), n);
  state.pieces->take(state.bytes(), state.tokens.size(), first, n, rows, part.bytes());
  const auto tokens = std::span(state.tokens).subspan(static_cast<std::size_t>(first), n_part);
  const bool is_restored = store.restore_part(slot, tokens, part.bytes());
  pool_.put(std::move(part));
  if (!is_restored) return Progress::kStuck;
  size_.learn(n, steady_us() - begin_us, store.n_part_max());
  if (slot.n_cells() == n_all) {
    slot.lora_scales = state.lora_scales;
    slot.cache_domain = state.cache_domain;
    slot.has_moved_cells = false;
    slot.is_throwaway = false;
    finish(true);
  }
  return Progress::kMoved;
}

void StateMover::fail(Stepper& stepper) {
  Slot& slot = *moves_.front().slot;
  if (slot.move == SlotMove::kIn) stepper.forget(slot);
  finish(false);
}

void StateMover::give_up() noexcept {
  while (!moves_.empty()) finish(false);
}

void StateMover::finish(bool succeeded) noexcept {
  const Move& move = moves_.front();
  move.action->succeeded = succeeded;
  move.action->n_tokens = move.slot->n_cells();
  move.slot->move = SlotMove::kNone;
  done_.push_back(move.action);
  moves_.erase(moves_.begin());
}

SlotAction* StateMover::next_done() noexcept {
  if (done_.empty()) return nullptr;
  SlotAction* action = done_.front();
  done_.erase(done_.begin());
  return action;
}

}  // namespace unpaced
