// SlotKeeper's turns between the steps: states on their way, part by part.
#include <algorithm>
#include <new>
#include <utility>

#include "decode/slot_keeper.h"
#include "slots/common_prefix.h"

namespace unpaced {
namespace {

// A cell takes a tenth of a microsecond, and nobody is to wait for two milliseconds.
constexpr std::int32_t kFreedMax = 16384;
// Of the memory for kept prompts, copies of what slots still hold take the fourth part at most: for
// each of them an old prompt goes that might have come back.
constexpr std::int64_t kEarlyPart = 4;

}  // namespace

bool SlotKeeper::has_work() const noexcept {
  return !seatings_.empty() || mover_.has_work() || cache_.has_unfinished() || !pool_.is_tidy() ||
         !is_swept_;
}

void SlotKeeper::work(Stepper& stepper, std::span<Slot> slots) {
  CellStore* store = stepper.cell_store();
  drop_stale(stepper);
  if (store == nullptr) {
    pool_.tidy();
    return;
  }
  const std::int64_t begin_us = steady_us();
  const bool is_awaited =
      mover_.has_work() || std::ranges::any_of(seatings_, [](const Seating& seating) {
        return seating.source.slot == nullptr;
      });
  const std::int64_t limit_us =
      begin_us - turn_us_ + (is_awaited ? 2 * options_.turn_us : options_.turn_us);
  drop_lost(*store);
  pool_.tidy();  // always: under a load without a pause there is no other time
  bool is_busy = true;
  for (bool is_over = false; is_busy && !is_over; is_over |= steady_us() >= limit_us) {
    is_busy = false;
    for (Seating& seating : seatings_) {
      is_busy |= advance(stepper, *store, slots, seating);
      is_over |= seating.is_ready;  // it waits for nothing else
    }
    if (!is_busy && !is_over) {
      // A request may wait for a copy, a part or two; a slot action takes as long as the slot is
      // large.
      const bool copies_first = !seatings_.empty();
      if (copies_first) is_busy = store->sweep() || copy_next(*store);
      if (!is_busy) is_busy = move_next(stepper, *store);
      if (!is_busy && !copies_first) is_busy = store->sweep() || copy_next(*store);
    }
    is_swept_ = !is_busy && !is_over;
  }
  count();
  spend(store, begin_us);
}

bool SlotKeeper::move_next(Stepper& stepper, CellStore& store) {
  switch (mover_.advance(store)) {
    case StateMover::Progress::kNone:
      return false;
    case StateMover::Progress::kMoved:
      return true;
    case StateMover::Progress::kStuck:
      break;
  }
  // Cells that are nobody's, and those of copies under way, become free.
  if (!store.sweep() && !copy_next(store)) mover_.fail(stepper);
  return true;
}

void SlotKeeper::spend(CellStore* store, std::int64_t begin_us) noexcept {
  turn_us_ += steady_us() - begin_us;
  if (store == nullptr) return;
  waited_us_ += store->take_waited_us();
  turn_us_ = std::max<std::int64_t>(turn_us_ - std::exchange(waited_us_, 0), 1);
}

void SlotKeeper::end_turn() noexcept {
  if (turn_us_ == 0) return;
  const auto turn_us = static_cast<std::uint64_t>(std::exchange(turn_us_, 0));
  counters_.cache_us.add(turn_us);
  counters_.cache_turn_us_max.set(std::max(counters_.cache_turn_us_max.get(), turn_us));
}

bool SlotKeeper::advance(Stepper& stepper, CellStore& store, std::span<const Slot> slots,
                         Seating& seating) {
  if (seating.is_ready || seating.source.slot != nullptr) return false;
  if (enter(store, seating)) return true;
  if (seating.state && seating.slot->n_cells() >= seating.n_wanted) {
    end_restore(&store, seating);
  }
  if (free_copied(store, seating)) return true;
  if (!has_room(store, slots, seating)) return false;
  if (seating.state) return restore_next(stepper, store, slots, seating);
  seating.is_ready = true;
  return false;
}

bool SlotKeeper::enter(CellStore& store, Seating& seating) {
  Slot& slot = *seating.slot;
  const RequestSpec& spec = *slot.spec;
  if (seating.state) return false;
  if (seating.lender != CellStore::kNoTicket) {
    const std::int32_t n = std::min(seating.n_wanted - slot.n_cells(), CellStore::kBookCells);
    if (n > 0 && store.holds(seating.lender)) {
      store.lend(
          seating.lender, slot,
          std::span<const TokenId>(spec.prompt)
              .subspan(static_cast<std::size_t>(slot.n_cells()), static_cast<std::size_t>(n)));
      return true;
    }
    seating.lender = CellStore::kNoTicket;
  }
  const std::int32_t n_kept = n_reused(slot, spec);
  if (slot.n_cells() - n_kept <= CellStore::kBookCells) return false;
  if (n_kept == 0) {
    store.discard(slot);
  } else {
    store.cut(slot, n_kept);
  }
  return true;
}

bool SlotKeeper::has_room(const CellStore& store, std::span<const Slot> slots,
                          const Seating& seating) noexcept {
  if (!cache_.has_unfinished()) return true;
  const RequestSpec& spec = *seating.slot->spec;
  if (spec.n_cache_reuse > 0) return false;  // its cells may move: what is parked of them first
  // One part's worth, which takes less than a millisecond, and low cells are free.
  const std::int32_t n_quick = std::min(part_size_.n_quick(), store.n_part_max());
  if (store.prefers_low_cells() && store.n_parked() <= n_quick) return false;
  std::int32_t n_needed = store.n_taken(slots) + 1;
  for (const Slot& slot : slots) {
    if (slot.active()) {
      n_needed += std::max(0, static_cast<std::int32_t>(slot.spec->prompt.size()) - slot.n_cells());
    }
  }
  return n_needed <= store.n_cells();
}

bool SlotKeeper::fits(const CellStore& store, std::span<const Slot> slots,
                      std::int32_t n) noexcept {
  return n + store.n_taken(slots) <= store.n_cells();
}

bool SlotKeeper::copy_next(CellStore& store) {
  KeptState* state = cache_.unfinished();
  if (state == nullptr) {
    if (pool_.is_tidy()) return false;
    pool_.tidy();
    return true;
  }
  if (!is_prepared(store, *state)) return true;
  if (!state->is_copied() && !copy_part(store, *state)) {
    store.unpark(state->ticket);
    drop_lost(store);
  } else if (state->is_copied()) {
    store.unpark(state->ticket);
    cache_.finish(*state);
  }
  return true;
}

bool SlotKeeper::free_copied(CellStore& store, Seating& seating) noexcept {
  if (seating.n_freed >= kFreedMax) return false;
  KeptState* state = cache_.copied([&](std::int32_t ticket) {
    return std::ranges::find(seatings_, ticket, &Seating::lender) == seatings_.end();
  });
  if (state == nullptr) return false;
  seating.n_freed += static_cast<std::int32_t>(state->tokens.size());
  store.unpark(state->ticket);
  cache_.finish(*state);
  return true;
}

bool SlotKeeper::copy_early(Stepper& stepper, std::span<const Slot> slots) {
  CellStore* store = stepper.cell_store();
  if (store == nullptr || !cache_.enabled() || !store->copies_early()) return false;
  const auto n_early_max =
      static_cast<std::size_t>(std::max<std::int64_t>(options_.cache_bytes_max / kEarlyPart, 0));
  for (const Slot& slot : slots) {
    if (!slot.is_free() || slot.is_throwaway || slot.has_moved_cells) continue;
    if (slot.n_cells() < CellStore::kParkMin || early_.is_whole(slot)) continue;
    store->measure(slot);
    const CacheKey key{.lora_scales = slot.lora_scales, .cache_domain = slot.cache_domain};
    if (!cache_.wants(slot.cells, store->part_bytes(slot.n_cells()), key)) continue;
    const std::size_t n_bytes = early_.n_missing_bytes(*store, slot);
    if (n_early_max > 0 && early_.n_bytes() + n_bytes > n_early_max) continue;
    make_room(n_bytes, 0);
    dispose_dropped(store);
    const bool has_copied = early_.copy_next(*store, slot);
    count();
    if (has_copied) return true;
  }
  return false;
}

std::int32_t SlotKeeper::n_next(const KeptState& state) const noexcept {
  return std::min(part_size_.n(), static_cast<std::int32_t>(state.tokens.size()) - state.n_copied);
}

bool SlotKeeper::is_prepared(const CellStore& store, const KeptState& state) noexcept {
  try {
    return state.is_copied() || pool_.prepare(store.part_bytes(n_next(state)));
  } catch (const std::bad_alloc&) {  // copy_part() finds none either
    return true;
  }
}

bool SlotKeeper::copy_part(CellStore& store, KeptState& state) {
  const std::int32_t n = n_next(state);
  try {
    StatePart part = pool_.take(store.part_bytes(n), n);
    const std::int64_t begin_us = steady_us();
    if (!store.copy_part(store.sequence_of(state.ticket), state.n_copied, n, part.bytes()))
      return false;
    part_size_.learn(n, steady_us() - begin_us, store.n_part_max());
    state.parts.push_back(std::move(part));
  } catch (const std::bad_alloc&) {  // the prompt will be computed anew, that is all
    return false;
  }
  state.n_copied += n;
  return true;
}

void SlotKeeper::drop_stale(Stepper& stepper) {
  for (auto it = seatings_.begin(); it != seatings_.end();) {
    const Slot& slot = *it->slot;
    if (slot.phase == SlotPhase::kSeating && slot.spec->id == it->id) {
      ++it;
      continue;
    }
    if (it->state) {
      stepper.forget(*it->slot);  // what came back would hide the rest
      put_back(stepper.cell_store(), *it->state);
    }
    it = seatings_.erase(it);
  }
}

void SlotKeeper::drop_lost(CellStore& store) noexcept {
  const auto is_gone = [&](std::int32_t ticket) { return !store.holds(ticket); };
  while (KeptState* state = cache_.copied(is_gone)) cache_.finish(*state);
  const auto is_lost = [&](const KeptState& state) {
    return state.ticket != CellStore::kNoTicket && !store.holds(state.ticket);
  };
  counters_.n_cache_lost.add(cache_.drop_if(is_lost));
  dispose_dropped(&store);
}

bool SlotKeeper::drop_unfinished(CellStore& store) noexcept {
  const KeptState* state = cache_.unfinished();
  if (state == nullptr) return false;
  store.unpark(state->ticket);
  drop_lost(store);
  return true;
}

void SlotKeeper::give_up(Stepper& stepper) noexcept {
  CellStore* store = stepper.cell_store();
  while (store != nullptr && drop_unfinished(*store)) {
  }
  is_swept_ = store == nullptr;
  count();
}

void SlotKeeper::dispose(CellStore* store, KeptState& state) noexcept {
  if (store != nullptr && state.ticket != CellStore::kNoTicket) store->unpark(state.ticket);
  for (StatePart& part : state.parts) pool_.put(std::move(part));
  state.parts.clear();
}

void SlotKeeper::dispose_dropped(CellStore* store) noexcept {
  for (KeptState& state : cache_.dropped()) dispose(store, state);
  cache_.dropped().clear();
}

void SlotKeeper::count() noexcept {
  counters_.n_cache_bytes.set(cache_.n_bytes());
  counters_.n_cache_early_bytes.set(early_.n_bytes());
  counters_.n_cache_states.set(cache_.size());
}

}  // namespace unpaced
