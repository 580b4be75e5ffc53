// The cell store of every backend, by llama.h alone. Tickets are sequences beyond those of the
// slots: which sequences a cell belongs to is bookkeeping, so parking copies nothing.
#pragma once

#include <llama.h>

#include <vector>

#include "kept/cell_store.h"

namespace unpaced {

class LlamaCellStore final : public CellStore {
 public:
  // Sequences a context needs for this store beside those of the slots. 0: the model's cells cannot
  // be cut by position (recurrent state, sliding window).
  [[nodiscard]] static std::int32_t n_sequences(const llama_model* model, std::int32_t n_slots);

  // The context's sequences from n_slots on are the store's.
  LlamaCellStore(llama_context* context, std::int32_t n_slots);

  // False: the context has no sequences for it.
  [[nodiscard]] bool is_usable() const noexcept { return !parked_.empty(); }
  // Where cells run short: the ticket that is out for longest loses its own. False: none is out.
  bool give_way() noexcept;
  // The slot's cells are about to move: tickets that share them lose theirs.
  void give_way_to(const Slot& slot) noexcept;
  // The KV was cleared.
  void lose_all() noexcept;

  [[nodiscard]] std::int32_t n_cells() const noexcept override;
  [[nodiscard]] std::int32_t n_parked() const noexcept override;
  [[nodiscard]] bool is_full() const noexcept override;
  [[nodiscard]] bool prefers_low_cells() const noexcept override { return true; }
  void measure(const Slot& slot) override;
  [[nodiscard]] std::size_t part_bytes(std::int32_t n) const noexcept override;
  [[nodiscard]] std::int32_t n_part_max() const noexcept override {
    return part_cells_max(std::max<std::size_t>(cell_bytes_, 1));
  }
  [[nodiscard]] std::int32_t park(const Slot& slot) override;
  [[nodiscard]] bool holds(std::int32_t ticket) const noexcept override;
  void unpark(std::int32_t ticket) noexcept override;
  [[nodiscard]] std::int32_t sequence_of(std::int32_t ticket) const noexcept override {
    return first_ + ticket;
  }
  [[nodiscard]] bool copy_part(std::int32_t ticket, std::int32_t first, std::int32_t n,
                               std::span<std::byte> to) override;
  [[nodiscard]] bool restore_part(Slot& slot, std::span<const TokenId> tokens,
                                  std::span<const std::byte> part) override;
  void lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override;

 private:
  struct Parked {
    std::int32_t n = 0;        // cells; 0: the ticket is not out
    std::int32_t slot = -1;    // whose they were
    std::uint64_t number = 0;  // counts park()
  };

  [[nodiscard]] llama_memory_t memory() const noexcept { return llama_get_memory(context_); }

  llama_context* const context_;
  const llama_seq_id first_;
  // What part of a sequence is copied, or restored, is a sequence for that long: llama.h copies
  // whole ones.
  const llama_seq_id part_;
  std::vector<Parked> parked_;  // by ticket
  std::uint64_t n_parks_ = 0;
  std::size_t cell_bytes_ = 0;  // 0: not measured yet
  std::size_t head_bytes_ = 0;  // of a part, beside its cells
};

}  // namespace unpaced
