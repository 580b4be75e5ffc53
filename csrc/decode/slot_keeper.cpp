#include "decode/slot_keeper.h"

#include <algorithm>
#include <new>
#include <utility>

#include "slots/common_prefix.h"

namespace unpaced {

SlotKeeper::SlotKeeper(const SlotKeeperOptions& options, std::int32_t n_slots, Counters& counters)
    : options_(options),
      counters_(counters),
      cache_(options.cache_bytes_max),
      early_(n_slots, pool_, part_size_),
      mover_(pool_, part_size_, n_slots) {
  seatings_.reserve(static_cast<std::size_t>(n_slots));
  holders_.reserve(kSequencesMax);
  holder_sources_.reserve(kSequencesMax);
}

void SlotKeeper::make_way(Stepper& stepper, std::span<Slot> slots, const SlotChoice& choice,
                          const RequestSpec& spec) {
  const std::int64_t begin_us = steady_us();
  CellStore* store = stepper.cell_store();
  drop_stale(stepper);
  Seating& seating = seatings_.emplace_back();
  seating.slot = choice.slot;
  seating.id = spec.id;
  if (store != nullptr) {
    drop_lost(*store);
    find_source(*store, slots, seating, spec, n_reused(*choice.slot, spec));
  }
  if (cache_.enabled()) {
    if (choice.takes_over) take_over(stepper, slots, seating, spec);
    if (options_.cache_idle_slots) seating.takeover.n_idle = keep_idle(stepper, slots, seating);
    if (store == nullptr && seating.state) restore_whole(stepper, seating);
    count();
  }
  use_source(stepper, seating);
  seating.is_ready = store == nullptr;
  is_swept_ = store == nullptr;
  spend(store, begin_us);
}

void SlotKeeper::take_over(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                           const RequestSpec& spec) {
  Slot& slot = *seating.slot;
  CellStore* store = stepper.cell_store();
  seating.takeover.updated = true;
  const std::vector<TokenId> held = slot.cells;
  const bool is_kept = keep(stepper, slot);
  if (!spec.cache_prompt || spec.prompt_logprobs) return;
  const CacheKey key{.lora_scales = spec.lora_scales, .cache_domain = spec.cache_domain};
  const auto n_kept = static_cast<std::int32_t>(cache_.longest_match(spec.prompt, key));
  const PrefixSource source = std::exchange(seating.source, {});
  // What cells hold already would fill as many again if it came back from host memory.
  const bool is_in_cells = source.n > 0 && source.n >= n_kept;
  // What is parked is taken as a whole where enough of it is of use.
  const bool may_take = !is_in_cells || source.slot == nullptr;
  const PrefixSource in_cells = is_in_cells ? source : PrefixSource{};
  if (may_take && look_for_better(stepper, slots, seating, spec, held, in_cells)) return;
  seating.source = source;
  if (source.n > 0) return;
  if (!is_kept || store == nullptr || !slot.is_of_use_to(spec)) return;
  const std::int32_t ticket = cache_.newest().ticket;
  if (spec.n_cache_reuse > 0) {  // what follows is reused where chunks may move
    store->lend(ticket, slot, held);
  } else {
    seating.lender = ticket;
    seating.n_wanted = static_cast<std::int32_t>(common_prefix_length(held, spec.prompt));
  }
}

bool SlotKeeper::keep(Stepper& stepper, Slot& slot) {
  if (slot.cells.empty() || slot.is_throwaway) return false;
  CellStore* store = stepper.cell_store();
  std::size_t n_bytes = 0;
  if (store == nullptr) {
    n_bytes = stepper.state_bytes(slot);
  } else if (slot.n_cells() >= CellStore::kParkMin) {
    store->measure(slot);
    n_bytes = store->part_bytes(slot.n_cells());
  }
  const CacheKey key{.lora_scales = slot.lora_scales, .cache_domain = slot.cache_domain};
  if (!cache_.wants(slot.cells, n_bytes, key)) return false;
  cache_.make_room(slot.cells, n_bytes, key);
  std::int32_t ticket = CellStore::kNoTicket;
  try {
    KeptState state;
    state.tokens = slot.cells;
    state.lora_scales = slot.lora_scales;
    state.cache_domain = slot.cache_domain;
    state.has_moved_cells = slot.has_moved_cells;
    state.n_exact = slot.n_exact;
    state.n_bytes = n_bytes;
    early_.hand_over(slot, state);
    make_room(0, n_bytes);
    dispose_dropped(store);
    if (store == nullptr) {
      StatePart part = pool_.take(n_bytes, slot.n_cells());
      if (!stepper.copy_state(slot, part.bytes())) return false;
      state.parts.push_back(std::move(part));
    } else {
      if (store->is_full()) drop_unfinished(*store);
      state.ticket = ticket = store->park(slot);
      if (ticket == CellStore::kNoTicket) {
        dispose(store, state);
        return false;
      }
    }
    cache_.put(std::move(state));
  } catch (const std::bad_alloc&) {  // the prompt will be computed anew, that is all
    if (store != nullptr) store->unpark(ticket);
    return false;
  }
  return true;
}

void SlotKeeper::make_room(std::size_t n_early, std::size_t n_kept) noexcept {
  if (options_.cache_bytes_max < 0) return;
  const auto n_max = static_cast<std::size_t>(options_.cache_bytes_max);
  const auto is_beyond = [&] {
    return cache_.n_bytes() + early_.n_bytes() + n_early + n_kept > n_max;
  };
  while (is_beyond() && (cache_.drop_oldest() || early_.drop_one())) {
  }
}

std::int32_t SlotKeeper::keep_idle(Stepper& stepper, std::span<Slot> slots,
                                   const Seating& seating) {
  std::int32_t n_kept = 0;
  for (Slot& slot : slots) {
    if (!slot.is_free() || slot.cells.empty()) continue;
    if (&slot == seating.slot || &slot == seating.source.slot) continue;
    const CellStore* store = stepper.cell_store();
    if (store != nullptr && store->is_full()) break;  // later
    if (keep(stepper, slot)) ++n_kept;
    if (options_.clear_idle_slots && !slot.cells.empty()) stepper.forget(slot);
  }
  return n_kept;
}

std::optional<SlotKeeper::Ready> SlotKeeper::next_ready() noexcept {
  const auto it = std::ranges::find_if(seatings_, &Seating::is_ready);
  if (it == seatings_.end()) return std::nullopt;
  const Ready ready{.slot = it->slot, .takeover = it->takeover};
  seatings_.erase(it);
  return ready;
}

bool SlotKeeper::act(Stepper& stepper, Slot& slot, SlotAction& action) {
  const std::int64_t begin_us = steady_us();
  CellStore* store = stepper.cell_store();
  const bool takes_turns = store != nullptr && mover_.begin(stepper, *store, slot, action);
  if (!takes_turns) act_at_once(stepper, slot, action);
  is_swept_ = store == nullptr;
  spend(store, begin_us);
  return !takes_turns;
}

void SlotKeeper::act_at_once(Stepper& stepper, Slot& slot, SlotAction& action) {
  CellStore* store = stepper.cell_store();
  switch (action.kind) {
    case SlotActionKind::kCopy:
      action.state.allocate(stepper.state_bytes(slot));
      action.state.tokens = slot.cells;
      action.state.lora_scales = slot.lora_scales;
      action.state.cache_domain = slot.cache_domain;
      action.succeeded = action.state.n_bytes > 0 && stepper.copy_state(slot, action.state.bytes());
      action.n_tokens = slot.n_cells();
      break;
    case SlotActionKind::kRestore:
      do {
        action.succeeded = stepper.restore_state(slot, action.state);
      } while (!action.succeeded && store != nullptr && drop_unfinished(*store));
      if (!action.succeeded) stepper.forget(slot);
      slot.is_throwaway = false;
      action.n_tokens = slot.n_cells();
      break;
    case SlotActionKind::kErase:
      action.n_tokens = slot.n_cells();
      stepper.forget(slot);
      action.succeeded = true;
      break;
  }
}

}  // namespace unpaced
