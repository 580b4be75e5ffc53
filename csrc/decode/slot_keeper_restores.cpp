// SlotKeeper's way back: which state a request gets from host memory, by copy or not at all.
#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "decode/slot_keeper.h"
#include "slots/common_prefix.h"

namespace unpaced {
namespace {

// Prompts that have no more in common than how every text begins need no copy of that.
constexpr std::int32_t kLentMin = 8;

}  // namespace

bool SlotKeeper::look_for_better(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                                 const RequestSpec& spec, std::span<const TokenId> held,
                                 const PrefixSource& source) {
  Slot& slot = *seating.slot;
  const std::span<const TokenId> of_use =
      slot.is_of_use_to(spec) ? held : std::span<const TokenId>();
  const auto n_held = static_cast<std::int32_t>(common_prefix_length(of_use, spec.prompt));
  const CacheKey key{.lora_scales = spec.lora_scales, .cache_domain = spec.cache_domain};
  const KeptState* found = cache_.find(of_use, spec.prompt, key, source.n > 0);
  // What was a small part of a long text is what a client asks for again and again.
  const bool may_be_lent =
      stepper.cell_store() != nullptr && source.n == 0 && spec.n_cache_reuse == 0;
  seating.is_lent = found == nullptr && may_be_lent;
  if (seating.is_lent)
    found = cache_.find_lender(static_cast<std::size_t>(n_held + kLentMin - 1), spec.prompt, key);
  if (found == nullptr) return false;
  // What follows is reused only where chunks may move.
  seating.n_wanted = static_cast<std::int32_t>(
      spec.n_cache_reuse > 0 ? found->tokens.size()
                             : common_prefix_length(found->tokens, spec.prompt));
  if (!chooses_copy(stepper, slots, seating, *found, n_held)) return false;
  seating.state = cache_.take(*found);
  CellStore* store = stepper.cell_store();
  if (store == nullptr) return true;
  KeptState& state = *seating.state;
  stepper.forget(slot);
  slot.is_throwaway = false;
  slot.lora_scales = state.lora_scales;
  slot.cache_domain = state.cache_domain;
  slot.has_moved_cells = state.has_moved_cells;
  if (state.ticket == CellStore::kNoTicket) return true;
  store->give_back(std::exchange(state.ticket, CellStore::kNoTicket), slot, state.tokens);
  end_restore(store, seating);
  return true;
}

bool SlotKeeper::chooses_copy(Stepper& stepper, std::span<const Slot> slots, Seating& seating,
                              const KeptState& state, std::int32_t n_held) noexcept {
  const RequestSpec& spec = *seating.slot->spec;
  // Of what is parked nothing is copied, and of chunks that may move nobody knows how many serve.
  if (state.ticket != CellStore::kNoTicket || spec.n_cache_reuse > 0) return true;
  if (options_.always_copies) return true;
  seating.n_held = n_held;
  RestoreOffer offer = offer_of(stepper, slots, seating, state);
  const std::int32_t n_first = state.parts.front().n_cells;
  offer.first_us = std::numeric_limits<double>::infinity();
  if (n_first > n_held) {
    const Seating first{
        .slot = seating.slot, .n_wanted = std::min(n_first, seating.n_wanted), .n_held = n_held};
    const RestoreOffer of_first = offer_of(stepper, slots, first, state);
    offer.first_us = of_first.copy_us - std::max(of_first.compute_us, 0.0);
  }
  const RestoreChoice::Way way = choice_.choose(offer);
  if (way != RestoreChoice::Way::kCopy) counters_.n_cache_computed.add(1);
  if (way == RestoreChoice::Way::kTry) counters_.n_cache_tried.add(1);
  seating.is_tried = way == RestoreChoice::Way::kTry;
  if (way == RestoreChoice::Way::kCompute) seating.takeover.n_computed = seating.n_wanted - n_held;
  return way != RestoreChoice::Way::kCompute;
}

RestoreOffer SlotKeeper::offer_of(Stepper& stepper, std::span<const Slot> slots,
                                  const Seating& seating, const KeptState& state) const noexcept {
  std::int32_t n_decoding = 0;
  std::int32_t n_waiting = 0;
  for (const Slot& slot : slots) {
    if (slot.phase == SlotPhase::kDecode) ++n_decoding;
    if (slot.phase != SlotPhase::kPrefill) continue;
    n_waiting += static_cast<std::int32_t>(slot.spec->prompt.size()) - slot.n_cells();
  }
  // As a whole it is copied without a step between.
  const bool has_turns = stepper.cell_store() != nullptr;
  const CopyPace pace{.turn_us = 2 * options_.turn_us,
                      .step_us = has_turns ? stepper.step_us(n_decoding, n_waiting) : 0};
  const auto parts = std::span(state.parts).subspan(seating.n_restored);
  RestoreOffer offer{.copy_us =
                         choice_.copy_us(parts, seating.n_wanted - seating.n_restored_cells, pace)};
  const auto n_prompt = static_cast<std::int32_t>(seating.slot->spec->prompt.size());
  const std::int32_t n_there = std::max(seating.n_held, seating.n_restored_cells);
  // The last token is computed in any case.
  const std::int32_t n_rest = std::max(1, n_prompt - seating.n_wanted);
  const double us = stepper.prompt_us(n_prompt - n_there, n_rest, n_decoding);
  if (us != 0) offer.compute_us = us;
  return offer;
}

bool SlotKeeper::goes_on(Stepper& stepper, std::span<const Slot> slots, Seating& seating) {
  if (seating.n_restored == 0 || seating.slot->spec->n_cache_reuse > 0) return true;
  if (options_.always_copies) return true;
  if (choice_.goes_on(offer_of(stepper, slots, seating, *seating.state))) return true;
  if (!seating.is_tried) counters_.n_cache_computed.add(1);
  seating.takeover.n_computed = seating.n_wanted - seating.n_restored_cells;
  seating.takeover.n_copied = seating.n_restored_cells;
  put_back(stepper.cell_store(), *seating.state);
  seating.state.reset();
  return false;
}

bool SlotKeeper::restore_next(Stepper& stepper, CellStore& store, std::span<const Slot> slots,
                              Seating& seating) {
  if (!goes_on(stepper, slots, seating)) return true;
  Slot& slot = *seating.slot;
  KeptState& state = *seating.state;
  bool is_restored = false;
  if (seating.n_restored < state.parts.size()) {
    const StatePart& part = state.parts[seating.n_restored];
    // What is parked gives up its cells first.
    if (!fits(store, slots, part.n_cells) && cache_.has_unfinished()) return false;
    const auto tokens = std::span<const TokenId>(state.tokens)
                            .subspan(static_cast<std::size_t>(slot.n_cells()),
                                     static_cast<std::size_t>(part.n_cells));
    is_restored = fits(store, slots, part.n_cells) && restore_part(store, slot, tokens, part);
  }
  if (is_restored) {
    ++seating.n_restored;
    seating.n_restored_cells = slot.n_cells();
  } else {
    seating.n_wanted = slot.n_cells();  // the rest is computed
  }
  return true;
}

bool SlotKeeper::restore_part(CellStore& store, Slot& slot, std::span<const TokenId> tokens,
                              const StatePart& part) {
  waited_us_ += store.take_waited_us();
  const std::int64_t begin_us = steady_us();
  if (!store.restore_part(slot, tokens, part.bytes())) return false;
  const std::int64_t waited_us = store.take_waited_us();
  waited_us_ += waited_us;
  learn(part.n_cells, steady_us() - begin_us - waited_us);
  return true;
}

void SlotKeeper::learn(std::int32_t n_cells, std::int64_t us) noexcept {
  choice_.observe(n_cells, static_cast<double>(std::max<std::int64_t>(us, 1)));
  counters_.cache_cell_ns.set(static_cast<std::uint64_t>(1e3 * choice_.part().each_us()));
}

void SlotKeeper::end_restore(CellStore* store, Seating& seating) noexcept {
  seating.takeover.n_copied = std::min(seating.n_wanted, seating.n_restored_cells);
  if (seating.n_restored > 0 && !seating.is_tried) counters_.n_cache_copied.add(1);
  if (seating.is_lent)
    put_back(store, *seating.state);
  else
    release(store, *seating.state);
  seating.state.reset();
}

void SlotKeeper::restore_whole(Stepper& stepper, Seating& seating) {
  KeptState& kept = *seating.state;
  const std::int32_t n_cells = kept.parts.front().n_cells;
  SlotState state;
  state.tokens = std::move(kept.tokens);
  state.lora_scales = std::move(kept.lora_scales);
  state.cache_domain = kept.cache_domain;
  state.n_exact = kept.n_exact;
  state.n_bytes = kept.n_bytes;
  state.data = std::move(kept.parts.front().data);
  const std::int64_t begin_us = steady_us();
  const bool is_restored = stepper.restore_state(*seating.slot, state);
  if (is_restored) {
    learn(n_cells, steady_us() - begin_us);
    seating.n_restored = 1;
    seating.n_restored_cells = seating.slot->n_cells();
  } else {
    stepper.forget(*seating.slot);
  }
  kept.parts.clear();
  end_restore(nullptr, seating);
}

void SlotKeeper::release(CellStore* store, KeptState& state) noexcept {
  cache_.release(state);
  dispose(store, state);
}

void SlotKeeper::put_back(CellStore* store, KeptState& state) noexcept {
  try {
    return cache_.put_back(state);
  } catch (const std::bad_alloc&) {  // then it goes
  }
  release(store, state);
}

}  // namespace unpaced
