#include "kept/early_copies.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "slots/common_prefix.h"

namespace unpaced {

EarlyCopies::EarlyCopies(std::int32_t n_slots, PartPool& pool, PartSize& part_size)
    : copies_(static_cast<std::size_t>(n_slots)), pool_(pool), part_size_(part_size) {}

std::int32_t EarlyCopies::n_of_use(const Copy& copy, const Slot& slot) noexcept {
  // What was computed for another place has the same tokens and other bytes.
  if (slot.has_moved_cells) return 0;
  if (copy.cache_domain != slot.cache_domain || copy.lora_scales != slot.lora_scales) return 0;
  const auto n_common = static_cast<std::int32_t>(common_prefix_length(copy.tokens, slot.cells));
  std::int32_t n = 0;
  for (const StatePart& part : copy.parts) {
    if (n + part.n_cells > n_common) break;
    n += part.n_cells;
  }
  return n;
}

void EarlyCopies::cut(Copy& copy, std::int32_t n) noexcept {
  while (static_cast<std::int32_t>(copy.tokens.size()) > n) {
    StatePart& last = copy.parts.back();
    copy.tokens.resize(copy.tokens.size() - static_cast<std::size_t>(last.n_cells));
    n_bytes_ -= last.n_bytes;
    pool_.put(std::move(last));
    copy.parts.pop_back();
  }
}

bool EarlyCopies::is_whole(const Slot& slot) const noexcept {
  return n_of_use(copies_[static_cast<std::size_t>(slot.id)], slot) == slot.n_cells();
}

std::size_t EarlyCopies::n_missing_bytes(const CellStore& store, const Slot& slot) const noexcept {
  const std::int32_t n = n_of_use(copies_[static_cast<std::size_t>(slot.id)], slot);
  return n == slot.n_cells() ? 0 : store.part_bytes(slot.n_cells() - n);
}

bool EarlyCopies::copy_next(CellStore& store, const Slot& slot) {
  Copy& copy = copies_[static_cast<std::size_t>(slot.id)];
  cut(copy, n_of_use(copy, slot));
  // Each answer adds some cells: a small part goes, so that they do not become many.
  if (!copy.parts.empty() && copy.parts.back().n_cells < part_size_.n()) {
    cut(copy, static_cast<std::int32_t>(copy.tokens.size()) - copy.parts.back().n_cells);
  }
  const auto first = static_cast<std::int32_t>(copy.tokens.size());
  const std::int32_t n = std::min(part_size_.n(), slot.n_cells() - first);
  try {
    copy.lora_scales = slot.lora_scales;
    copy.cache_domain = slot.cache_domain;
    copy.parts.reserve(copy.parts.size() + 1);
    copy.tokens.reserve(slot.cells.size());
    StatePart part = pool_.take(store.part_bytes(n), n);
    const auto begin = std::chrono::steady_clock::now();
    if (!store.copy_part(slot.sequence, first, n, part.bytes())) return false;
    const auto passed = std::chrono::steady_clock::now() - begin;
    part_size_.learn(n, std::chrono::duration_cast<std::chrono::microseconds>(passed).count(),
                     store.n_part_max());
    n_bytes_ += part.n_bytes;
    copy.parts.push_back(std::move(part));
  } catch (const std::bad_alloc&) {  // it is copied when it is displaced, or not at all
    return false;
  }
  copy.tokens.insert(copy.tokens.end(), slot.cells.begin() + first, slot.cells.begin() + first + n);
  return true;
}

void EarlyCopies::hand_over(const Slot& slot, KeptState& state) noexcept {
  Copy& copy = copies_[static_cast<std::size_t>(slot.id)];
  cut(copy, n_of_use(copy, slot));
  state.n_copied = static_cast<std::int32_t>(copy.tokens.size());
  for (const StatePart& part : copy.parts) n_bytes_ -= part.n_bytes;
  state.parts = std::exchange(copy.parts, {});
  copy.tokens.clear();
}

bool EarlyCopies::drop_one() noexcept {
  const auto found =
      std::ranges::find_if(copies_, [](const Copy& copy) { return !copy.parts.empty(); });
  if (found == copies_.end()) return false;
  cut(*found, 0);
  return true;
}

}  // namespace unpaced
