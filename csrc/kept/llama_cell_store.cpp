#include "kept/llama_cell_store.h"

#include <algorithm>
#include <bit>

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
      first_(n_slots),
      part_(static_cast<llama_seq_id>(llama_n_seq_max(context)) - 1),
      parked_(static_cast<std::size_t>(std::max(0, part_ - first_))) {}

bool LlamaCellStore::give_way() noexcept {
  const auto oldest =
      std::min_element(parked_.begin(), parked_.end(), [](const Parked& a, const Parked& b) {
        return a.n > 0 && (b.n == 0 || a.number < b.number);
      });
  if (oldest == parked_.end() || oldest->n == 0) return false;
  unpark(static_cast<std::int32_t>(oldest - parked_.begin()));
  return true;
}

void LlamaCellStore::give_way_to(const Slot& slot) noexcept {
  for (std::size_t i = 0; i < parked_.size(); ++i) {
    if (parked_[i].n > 0 && parked_[i].slot == slot.id) unpark(static_cast<std::int32_t>(i));
  }
}

void LlamaCellStore::lose_all() noexcept {
  for (Parked& parked : parked_) parked.n = 0;
}

std::int32_t LlamaCellStore::n_cells() const noexcept {
  return static_cast<std::int32_t>(llama_n_ctx(context_));
}

std::int32_t LlamaCellStore::n_parked() const noexcept {
  std::int32_t n = 0;
  for (const Parked& parked : parked_) n += parked.n;
  return n;
}

bool LlamaCellStore::is_full() const noexcept {
  return std::ranges::all_of(parked_, [](const Parked& parked) { return parked.n > 0; });
}

std::size_t LlamaCellStore::part_bytes(std::int32_t n) const noexcept {
  return head_bytes_ + cell_bytes_ * static_cast<std::size_t>(n);
}

// Every cell takes the same.
void LlamaCellStore::measure(const Slot& slot) {
  if (cell_bytes_ > 0) return;
  const auto bytes_of = [&](llama_pos n) {
    llama_memory_seq_cp(memory(), slot.id, part_, 0, n);
    const std::size_t n_bytes = llama_state_seq_get_size(context_, part_);
    llama_memory_seq_rm(memory(), part_, -1, -1);
    return n_bytes;
  };
  const std::size_t one = bytes_of(1);
  cell_bytes_ = bytes_of(2) - one;
  head_bytes_ = one - cell_bytes_;
}

std::int32_t LlamaCellStore::park(const Slot& slot) {
  const auto free = std::ranges::find(parked_, 0, &Parked::n);
  if (free == parked_.end()) return kNoTicket;
  const auto ticket = static_cast<std::int32_t>(free - parked_.begin());
  llama_memory_seq_cp(memory(), slot.id, sequence_of(ticket), -1, -1);
  *free = {.n = slot.n_cells(), .slot = slot.id, .number = n_parks_++};
  return ticket;
}

bool LlamaCellStore::holds(std::int32_t ticket) const noexcept {
  return ticket >= 0 && parked_[static_cast<std::size_t>(ticket)].n > 0;
}

void LlamaCellStore::unpark(std::int32_t ticket) noexcept {
  if (!holds(ticket)) return;
  llama_memory_seq_rm(memory(), sequence_of(ticket), -1, -1);
  parked_[static_cast<std::size_t>(ticket)].n = 0;
}

bool LlamaCellStore::copy_part(std::int32_t ticket, std::int32_t first, std::int32_t n,
                               std::span<std::byte> to) {
  llama_memory_seq_cp(memory(), sequence_of(ticket), part_, first, first + n);
  const std::size_t n_written = llama_state_seq_get_data(
      context_, reinterpret_cast<std::uint8_t*>(to.data()), to.size(), part_);
  llama_memory_seq_rm(memory(), part_, -1, -1);
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
    llama_memory_seq_cp(memory(), part_, slot.id, -1, -1);
    slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
  }
  llama_memory_seq_rm(memory(), part_, -1, -1);
  return fits;
}

void LlamaCellStore::lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) {
  const auto n = static_cast<llama_pos>(tokens.size());
  llama_memory_seq_cp(memory(), sequence_of(ticket), slot.id, 0, n);
  slot.cells.assign(tokens.begin(), tokens.end());
}

}  // namespace unpaced
