// The cell store of every backend, by llama.h alone. There are more sequences than slots: to park
// what a slot holds is to give the slot another sequence, whatever the number of cells. llama.cpp
// keeps each sequence's cells in a tree, so to enter or remove n of them takes time for each.
#pragma once

#include <llama.h>

#include <vector>

#include "kept/cell_store.h"
#include "kept/sequence_cells.h"

namespace unpaced {

class LlamaCellStore final : public CellStore {
 public:
  // Sequences a context needs for this store beside those of the slots. 0: the model's cells cannot
  // be cut by position (recurrent state, sliding window).
  [[nodiscard]] static std::int32_t n_sequences(const llama_model* model, std::int32_t n_slots);

  // The context's sequences from n_slots on are the store's.
  LlamaCellStore(llama_context* context, std::int32_t n_slots);

  // From now on cells change hands by this; it is of the same context.
  void use(SequenceCells& sequences) noexcept { sequences_ = &sequences; }
  // The sequence's cells from position `first` on are free. The store need not be usable, but the
  // model's cells can be cut by position.
  void free_from(llama_seq_id sequence, llama_pos first) noexcept {
    sequences_->remove(sequence, first);
  }

  // No sequence has any: the next ones of this one begin at the first cell.
  void begin_at_first(llama_seq_id sequence) noexcept { sequences_->search_anew(sequence); }

  // False: the context has no sequences for it.
  [[nodiscard]] bool is_usable() const noexcept { return held_.capacity() > 0; }
  // Where cells run short: frees those that are nobody's, else those of the ticket that is out for
  // longest, of those first whose cells no slot has as well; kBookCells at most. False: there are
  // none.
  bool give_way() noexcept;
  // Cells of a slot are about to move: tickets that share them lose theirs.
  void unpark_all() noexcept;
  // Tickets that have more than the slot's first n cells lose theirs.
  void unpark_beyond(const Slot& slot, std::int32_t n) noexcept;
  // The slot's cells [first, last) are its own from now on: those that other sequences have as well
  // stay as they are, and the slot gets a copy. False: there are not enough free ones, or no
  // memory, and nothing has happened.
  [[nodiscard]] bool make_own(const Slot& slot, std::int32_t first, std::int32_t last);
  // The slot's sequence has lost its cells from the n-th on, or they moved.
  void note_cut(const Slot& slot, std::int32_t n) noexcept { index_.cut(slot.sequence, n); }
  // The KV was cleared.
  void lose_all() noexcept;

  [[nodiscard]] std::int32_t n_cells() const noexcept override;
  [[nodiscard]] std::int32_t n_parked() const noexcept override;
  [[nodiscard]] std::int32_t n_taken(std::span<const Slot> slots) const noexcept override;
  [[nodiscard]] const PrefixIndex& index() const noexcept override { return index_; }
  [[nodiscard]] bool is_full() const noexcept override;
  [[nodiscard]] bool prefers_low_cells() const noexcept override { return true; }
  void measure(const Slot& slot) override;
  [[nodiscard]] std::size_t part_bytes(std::int32_t n) const noexcept override;
  [[nodiscard]] std::int32_t n_part_max() const noexcept override {
    return part_cells_max(std::max<std::size_t>(cell_bytes_, 1));
  }
  [[nodiscard]] std::int32_t park(Slot& slot) override;
  [[nodiscard]] bool holds(std::int32_t ticket) const noexcept override {
    return find(ticket) != nullptr;
  }
  void unpark(std::int32_t ticket) noexcept override;
  [[nodiscard]] std::int32_t sequence_of(std::int32_t ticket) const noexcept override {
    return find(ticket)->sequence;
  }
  [[nodiscard]] std::vector<std::byte> sample_state(const Slot& slot) override;
  [[nodiscard]] bool copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                               std::span<std::byte> to) override;
  [[nodiscard]] bool restore_part(Slot& slot, std::span<const TokenId> tokens,
                                  std::span<const std::byte> part) override;
  void lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override;
  void share(const Slot& from, Slot& to, std::int32_t n) override;
  void give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override;
  void discard(Slot& slot) noexcept override;
  void cut(Slot& slot, std::int32_t n_keep) noexcept override;
  bool sweep() noexcept override;

 private:
  // A sequence that has cells and is no slot's.
  struct Held {
    llama_seq_id sequence;
    std::int32_t ticket;  // kNoTicket: its cells are nobody's
    std::int32_t n;       // cells
    std::int32_t n_swept = 0;
  };

  [[nodiscard]] const Held* find(std::int32_t ticket) const noexcept;
  [[nodiscard]] Held* find(std::int32_t ticket) noexcept;
  // The slot's sequence is held from now on, and it gets another one. The caller knows that there
  // is one.
  void exchange(Slot& slot, std::int32_t ticket) noexcept;
  // Its cells are nobody's from now on.
  void disown(Held& held) noexcept;
  // Its cells are free, its sequence is for the next one.
  void release(Held& held) noexcept;
  [[nodiscard]] llama_memory_t memory() const noexcept { return llama_get_memory(context_); }

  llama_context* const context_;
  // What part of a sequence is copied, or restored, is a sequence for that long: llama.h copies
  // whole ones.
  const llama_seq_id part_;
  SequenceCells by_llama_;
  SequenceCells* sequences_ = &by_llama_;
  PrefixIndex index_;
  std::vector<Held> held_;          // the oldest first
  std::vector<llama_seq_id> free_;  // sequences without cells
  std::int32_t next_ticket_ = 0;
  std::size_t cell_bytes_ = 0;  // 0: not measured yet
  std::size_t head_bytes_ = 0;  // of a part, beside its cells
};

}  // namespace unpaced
