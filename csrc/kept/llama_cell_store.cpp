#include "kept/llama_cell_store.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <new>
#include <utility>

namespace unpaced {

std::int32_t LlamaCellStore::n_sequences(const llama_model* model, std::int32_t n_slots) {
  if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model) ||
      llama_model_n_swa(model) > 0) {
    return 0;
  }
  // A ticket for each slot twice, and the sequence of the part under way. A power of two together:
  // llama.cpp rounds its largest batch up to a multiple.
  const auto n_all = std::min(std::bit_ceil(3 * static_cast<std::size_t>(n_slots) + 1),
                              llama_max_parallel_sequences());
  const std::int32_t n = static_cast<std::int32_t>(n_all) - n_slots;
  return n < 2 ? 0 : n;
}

LlamaCellStore::LlamaCellStore(llama_context* context, std::int32_t n_slots)
    : context_(context),
      part_(static_cast<llama_seq_id>(llama_n_seq_max(context)) - 1),
      by_llama_(context),
      index_(static_cast<std::int32_t>(llama_n_seq_max(context))) {
  for (llama_seq_id sequence = part_ - 1; sequence >= n_slots; --sequence) {
    free_.push_back(sequence);
  }
  held_.reserve(free_.size());
}

const LlamaCellStore::Held* LlamaCellStore::find(std::int32_t ticket) const noexcept {
  const auto found = std::ranges::find(held_, ticket, &Held::ticket);
  return ticket == kNoTicket || found == held_.end() ? nullptr : &*found;
}

LlamaCellStore::Held* LlamaCellStore::find(std::int32_t ticket) noexcept {
  return const_cast<Held*>(std::as_const(*this).find(ticket));
}

void LlamaCellStore::exchange(Slot& slot, std::int32_t ticket) noexcept {
  held_.push_back({.sequence = slot.sequence, .ticket = ticket, .n = slot.n_cells()});
  if (ticket == kNoTicket) disown(held_.back());
  slot.sequence = free_.back();
  free_.pop_back();
  slot.cells.clear();
}

void LlamaCellStore::disown(Held& held) noexcept {
  held.ticket = kNoTicket;
  index_.cut(held.sequence, 0);
}

void LlamaCellStore::release(Held& held) noexcept {
  index_.cut(held.sequence, 0);
  sequences_->remove(held.sequence, 0);
  free_.push_back(held.sequence);
  held_.erase(held_.begin() + (&held - held_.data()));
}

bool LlamaCellStore::sweep() noexcept {
  const auto found = std::ranges::find(held_, kNoTicket, &Held::ticket);
  if (found == held_.end()) return false;
  if (found->n - found->n_swept <= kBookCells) {
    release(*found);
  } else {
    const std::int32_t first = std::exchange(found->n_swept, found->n_swept + kBookCells);
    sequences_->remove(found->sequence, first, found->n_swept);
  }
  return true;
}

bool LlamaCellStore::give_way() noexcept {
  if (sweep()) return true;
  if (held_.empty()) return false;
  const auto is_its_own = [this](const Held& held) {
    return index_.n_shared(held.sequence) < held.n;
  };
  const auto found = std::ranges::find_if(held_, is_its_own);
  disown(found == held_.end() ? held_.front() : *found);
  return sweep();
}

void LlamaCellStore::unpark_all() noexcept {
  while (!held_.empty()) release(held_.back());
}

void LlamaCellStore::unpark_beyond(const Slot& slot, std::int32_t n) noexcept {
  for (std::size_t i = held_.size(); i-- > 0;) {
    if (index_.n_common(slot.sequence, held_[i].sequence) > n) release(held_[i]);
  }
}

bool LlamaCellStore::make_own(const Slot& slot, std::int32_t first, std::int32_t last) {
  sequences_->share(slot.sequence, part_, first, last);
  const std::size_t n_bytes = llama_state_seq_get_size(context_, part_);
  std::vector<std::uint8_t> state;
  try {
    state.resize(n_bytes);
  } catch (const std::bad_alloc&) {
    sequences_->remove(part_, 0);
    return false;
  }
  const std::size_t n_written =
      llama_state_seq_get_data(context_, state.data(), state.size(), part_);
  sequences_->remove(part_, 0);
  if (n_written != state.size()) return false;
  // Where no cells are free it leaves the sequence empty.
  if (llama_state_seq_set_data(context_, state.data(), state.size(), part_) != state.size()) {
    sequences_->remove(part_, 0);
    return false;
  }
  sequences_->remove(slot.sequence, first, last);
  sequences_->share(part_, slot.sequence, 0, std::numeric_limits<llama_pos>::max());
  sequences_->remove(part_, 0);
  index_.cut(slot.sequence, first);
  return true;
}

void LlamaCellStore::lose_all() noexcept {
  for (const Held& held : held_) free_.push_back(held.sequence);
  held_.clear();
  index_.clear();
}

std::int32_t LlamaCellStore::n_cells() const noexcept {
  return static_cast<std::int32_t>(llama_n_ctx(context_));
}

std::int32_t LlamaCellStore::n_parked() const noexcept {
  std::int32_t n = 0;
  for (const Held& held : held_) n += held.ticket == kNoTicket ? 0 : held.n;
  return n;
}

std::int32_t LlamaCellStore::n_taken(std::span<const Slot> slots) const noexcept {
  std::array<PrefixIndex::Held, kSequencesMax> all;
  std::size_t n = 0;
  for (const Slot& slot : slots) all[n++] = {.sequence = slot.sequence, .n = slot.n_cells()};
  for (const Held& held : held_) {
    if (held.ticket != kNoTicket) all[n++] = {.sequence = held.sequence, .n = held.n};
  }
  return index_.n_distinct({all.data(), n});
}

bool LlamaCellStore::is_full() const noexcept { return free_.empty(); }

std::size_t LlamaCellStore::part_bytes(std::int32_t n) const noexcept {
  return head_bytes_ + cell_bytes_ * static_cast<std::size_t>(n);
}

// Every cell takes the same.
void LlamaCellStore::measure(const Slot& slot) {
  if (cell_bytes_ > 0) return;
  const auto bytes_of = [&](llama_pos n) {
    sequences_->share(slot.sequence, part_, 0, n);
    const std::size_t n_bytes = llama_state_seq_get_size(context_, part_);
    sequences_->remove(part_, 0);
    return n_bytes;
  };
  const std::size_t one = bytes_of(1);
  cell_bytes_ = bytes_of(2) - one;
  head_bytes_ = one - cell_bytes_;
}

std::int32_t LlamaCellStore::park(Slot& slot) {
  if (free_.empty()) sweep();
  if (free_.empty()) return kNoTicket;
  const std::int32_t ticket = next_ticket_;
  next_ticket_ = ticket == std::numeric_limits<std::int32_t>::max() ? 0 : ticket + 1;
  exchange(slot, ticket);
  return ticket;
}

void LlamaCellStore::unpark(std::int32_t ticket) noexcept {
  Held* held = find(ticket);
  if (held == nullptr) return;
  disown(*held);
  if (held->n <= kBookCells) release(*held);
}

void LlamaCellStore::discard(Slot& slot) noexcept {
  if (slot.n_cells() > kBookCells && !free_.empty()) return exchange(slot, kNoTicket);
  sequences_->remove(slot.sequence, 0);
  slot.cells.clear();
  index_.cut(slot.sequence, 0);
}

void LlamaCellStore::cut(Slot& slot, std::int32_t n_keep) noexcept {
  const std::int32_t n = std::max(n_keep, slot.n_cells() - kBookCells);
  sequences_->remove(slot.sequence, n);
  index_.cut(slot.sequence, n);
  slot.cells.resize(static_cast<std::size_t>(n));
}

std::vector<std::byte> LlamaCellStore::sample_state(const Slot& slot) {
  sequences_->share(slot.sequence, part_, 0, 2);
  std::vector<std::byte> state(llama_state_seq_get_size(context_, part_));
  const std::size_t n_written = llama_state_seq_get_data(
      context_, reinterpret_cast<std::uint8_t*>(state.data()), state.size(), part_);
  sequences_->remove(part_, 0);
  if (n_written != state.size()) state.clear();
  return state;
}

bool LlamaCellStore::copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                               std::span<std::byte> to) {
  const bool is_whole = first == 0 && llama_memory_seq_pos_max(memory(), sequence) == n - 1;
  if (!is_whole) sequences_->share(sequence, part_, first, first + n);
  const std::size_t n_written = llama_state_seq_get_data(
      context_, reinterpret_cast<std::uint8_t*>(to.data()), to.size(), is_whole ? sequence : part_);
  sequences_->remove(part_, 0);
  return n_written == to.size();
}

bool LlamaCellStore::restore_part(Slot& slot, std::span<const TokenId> tokens,
                                  std::span<const std::byte> part) {
  const std::int32_t first = slot.n_cells();
  const auto n = static_cast<std::int32_t>(tokens.size());
  const std::size_t n_read = llama_state_seq_set_data(
      context_, reinterpret_cast<const std::uint8_t*>(part.data()), part.size(), part_);
  const bool fits = n_read == part.size() && llama_memory_seq_pos_min(memory(), part_) == first &&
                    llama_memory_seq_pos_max(memory(), part_) == first + n - 1;
  if (fits) {
    sequences_->share(part_, slot.sequence, 0, std::numeric_limits<llama_pos>::max());
    slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
  }
  sequences_->remove(part_, 0);
  return fits;
}

void LlamaCellStore::lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) {
  Held& held = *find(ticket);
  const std::int32_t first = slot.n_cells();
  slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
  sequences_->share(held.sequence, slot.sequence, first, slot.n_cells());
  index_.share(held.sequence, slot.sequence, slot.n_cells());
}

void LlamaCellStore::share(const Slot& from, Slot& to, std::int32_t n) {
  const std::int32_t first = to.n_cells();
  to.cells.insert(to.cells.end(), from.cells.begin() + first, from.cells.begin() + n);
  sequences_->share(from.sequence, to.sequence, first, n);
  index_.share(from.sequence, to.sequence, n);
}

void LlamaCellStore::give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) {
  slot.cells.assign(tokens.begin(), tokens.end());
  Held& held = *find(ticket);
  free_.push_back(std::exchange(slot.sequence, held.sequence));
  held_.erase(held_.begin() + (&held - held_.data()));
}

}  // namespace unpaced
