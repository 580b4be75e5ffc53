// SlotKeeper's search for prefixes in cells that other sequences hold, or are about to.
#include <algorithm>
#include <tuple>

#include "decode/slot_keeper.h"
#include "slots/common_prefix.h"

namespace unpaced {
namespace {

// Fewer tokens are not worth another batch's wait, nor cells that two hold.
constexpr std::int32_t kShareMin = 32;

// The tokens that the slot holds for this request or will hold; none: nothing to count on.
// `is_earlier`: where it is kSeating too, that it does not wait for the one who asks.
std::span<const TokenId> tokens_of(const Slot& slot, const RequestSpec& request, bool is_earlier) {
  if (!slot.active()) {
    const bool may_give = !slot.is_throwaway && !slot.has_moved_cells && slot.move != SlotMove::kIn;
    if (!may_give || !slot.is_of_use_to(request)) return {};
    return slot.cells;
  }
  const RequestSpec& its = *slot.spec;
  const bool is_akin = its.cache_prompt && its.cache_domain == request.cache_domain &&
                       its.lora_scales == request.lora_scales;
  if (!is_akin) return {};
  if (slot.phase == SlotPhase::kSeating) {
    if (!is_earlier || its.n_cache_reuse > 0) return {};
    return its.prompt;
  }
  if (slot.has_moved_cells) return {};
  if (slot.phase == SlotPhase::kPrefill) return its.prompt;
  return slot.cells;
}

// What of its tokens it holds now.
std::int32_t n_held_of(const PrefixSource& source) noexcept {
  if (source.slot == nullptr) return source.n;
  if (source.slot->phase == SlotPhase::kSeating) return 0;
  return std::min(source.n, source.slot->n_cells());
}

}  // namespace

std::int32_t SlotKeeper::n_reused(const Slot& slot, const RequestSpec& spec) noexcept {
  if (!spec.cache_prompt || spec.prompt_logprobs || !slot.is_of_use_to(spec)) return 0;
  if (spec.n_cache_reuse > 0) return slot.n_cells();
  return static_cast<std::int32_t>(common_prefix_length(slot.cells, spec.prompt));
}

void SlotKeeper::collect_slots(std::span<const Slot> slots, const Seating& seating,
                               const RequestSpec& spec) {
  const auto is_earlier = [&](const Slot& slot) {
    return std::ranges::any_of(
        seatings_, [&](const Seating& other) { return other.slot == &slot && &other < &seating; });
  };
  for (const Slot& slot : slots) {
    if (&slot == seating.slot) continue;
    const bool is_seating = slot.phase == SlotPhase::kSeating;
    const auto tokens = tokens_of(slot, spec, is_seating && is_earlier(slot));
    if (tokens.empty()) continue;
    holders_.push_back({.sequence = is_seating ? -1 : slot.sequence, .tokens = tokens});
    holder_sources_.push_back({.slot = &slot, .id = slot.active() ? slot.spec->id : 0});
  }
}

void SlotKeeper::find_source(const CellStore& store, std::span<const Slot> slots, Seating& seating,
                             const RequestSpec& spec, std::int32_t n_own) {
  seating.source = {};
  if (!spec.cache_prompt || spec.prompt_logprobs || slots.size() < 2) return;
  holders_.clear();
  holder_sources_.clear();
  collect_slots(slots, seating, spec);
  cache_.visit_parked(
      {.lora_scales = spec.lora_scales, .cache_domain = spec.cache_domain},
      [&](const KeptState& state) {
        if (state.has_moved_cells || !store.holds(state.ticket)) return;
        holders_.push_back({.sequence = store.sequence_of(state.ticket), .tokens = state.tokens});
        holder_sources_.push_back({.ticket = state.ticket});
      });
  // The last token is computed in any case.
  store.index().match(std::span(spec.prompt).first(spec.prompt.size() - 1), holders_);
  std::int32_t n_longest = 0;
  for (const PrefixIndex::Holder& holder : holders_) {
    n_longest = std::max(n_longest, holder.n_match);
  }
  if (n_longest < n_own + kShareMin) return;
  // For a few tokens more nobody waits.
  const std::int32_t n_enough = std::max(n_longest, kShareMin) - kShareMin + 1;
  for (std::size_t i = 0; i < holders_.size(); ++i) {
    PrefixSource source = holder_sources_[i];
    source.n = holders_[i].n_match;
    if (source.n < std::max(n_enough, n_own + 1)) continue;
    const auto rank = [](const PrefixSource& s) { return std::tuple(n_held_of(s), s.n, ~s.id); };
    if (seating.source.n == 0 || rank(source) > rank(seating.source)) seating.source = source;
  }
}

void SlotKeeper::use_source(Stepper& stepper, Seating& seating) {
  if (seating.source.n == 0) return;
  stepper.forget(*seating.slot);  // all that the request reuses is elsewhere
  seating.slot->lora_scales = seating.slot->spec->lora_scales;
  seating.slot->cache_domain = seating.slot->spec->cache_domain;
  if (seating.source.slot == nullptr) {
    seating.lender = seating.source.ticket;
    seating.n_wanted = seating.source.n;
    seating.source = {};
  } else if (n_held_of(seating.source) < seating.source.n) {
    counters_.n_prefix_waits.add(1);
  }
}

bool SlotKeeper::is_there(const PrefixSource& source) noexcept {
  const Slot& slot = *source.slot;
  if (!slot.active()) return source.id == 0 && slot.n_cells() >= source.n && !slot.has_moved_cells;
  if (slot.spec->id != source.id) return false;
  return slot.phase == SlotPhase::kSeating || !slot.has_moved_cells;
}

bool SlotKeeper::awaits_prefixes() const noexcept {
  return std::ranges::any_of(seatings_,
                             [](const Seating& seating) { return seating.source.slot != nullptr; });
}

void SlotKeeper::share_prefixes(Stepper& stepper, std::span<Slot> slots) {
  const std::int64_t begin_us = steady_us();
  CellStore& store = *stepper.cell_store();
  drop_stale(stepper);
  bool is_busy = true;
  while (is_busy && steady_us() - begin_us < 2 * options_.turn_us) {
    is_busy = false;
    for (Seating& seating : seatings_) {
      if (seating.source.slot != nullptr) is_busy |= share_next(stepper, store, slots, seating);
    }
  }
  spend(&store, begin_us);
}

bool SlotKeeper::share_next(Stepper& stepper, CellStore& store, std::span<const Slot> slots,
                            Seating& seating) {
  Slot& slot = *seating.slot;
  const PrefixSource& source = seating.source;
  if (!is_there(source)) {
    find_source(store, slots, seating, *slot.spec, n_reused(slot, *slot.spec));
    use_source(stepper, seating);
    return true;
  }
  if (n_held_of(source) < source.n) return false;
  const std::int32_t n = std::min(source.n, slot.n_cells() + CellStore::kBookCells);
  store.share(*source.slot, slot, n);
  if (n == source.n) seating.source = {};
  return true;
}

}  // namespace unpaced
