// KV cells beside those of the slots: parked under a ticket until they are in host memory, copied
// there and back in parts, so that nobody waits for a whole state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cells/prefix_index.h"
#include "slots/slot.h"

namespace unpaced {

// A stepper's. Decode thread only, between steps. `ticket` is what park() gave.
class CellStore {
 public:
  static constexpr std::int32_t kNoTicket = -1;
  static constexpr std::int32_t kParkMin = 2;  // fewer cells are not worth it
  // Cells that one call enters into the books or takes out of them: each takes a tenth of a
  // microsecond, and nobody is to wait a millisecond for it.
  static constexpr std::int32_t kBookCells = 4096;

  CellStore() = default;
  CellStore(const CellStore&) = delete;
  CellStore& operator=(const CellStore&) = delete;
  virtual ~CellStore() = default;

  // Of all slots together.
  [[nodiscard]] virtual std::int32_t n_cells() const noexcept = 0;
  // Under all tickets.
  [[nodiscard]] virtual std::int32_t n_parked() const noexcept = 0;
  // Of these slots and under all tickets, each counted once.
  [[nodiscard]] virtual std::int32_t n_taken(std::span<const Slot> slots) const noexcept = 0;
  // Which sequences, of slots and of tickets, have cells in common.
  [[nodiscard]] virtual const PrefixIndex& index() const noexcept = 0;
  // All tickets are out.
  [[nodiscard]] virtual bool is_full() const noexcept = 0;
  // A request computes faster in cells that parked ones leave free: attention on the CPU reads all
  // cells up to the highest one in use, whoever's they are.
  [[nodiscard]] virtual bool prefers_low_cells() const noexcept { return false; }
  // The cells are in other memory than what they are copied to: copies of what idle slots hold are
  // made ahead of time. Where it is the same memory, most of them would fill it twice for nothing.
  [[nodiscard]] virtual bool copies_early() const noexcept { return false; }
  // Finds out what a cell takes, the first time; the slot holds at least kParkMin.
  virtual void measure(const Slot& slot) = 0;
  // Of a part of n cells, n > 0, once that has been measured.
  [[nodiscard]] virtual std::size_t part_bytes(std::int32_t n) const noexcept = 0;

  // Cells of a part at most.
  [[nodiscard]] virtual std::int32_t n_part_max() const noexcept = 0;

  // The slot's cells, at least kParkMin, become the ticket's, and the slot holds none; nothing is
  // copied. kNoTicket: the store is full.
  [[nodiscard]] virtual std::int32_t park(Slot& slot) = 0;
  // False: the cells were needed. No ticket is given twice.
  [[nodiscard]] virtual bool holds(std::int32_t ticket) const noexcept = 0;
  // Its cells are free as soon as they are needed, or swept, but for those that a slot has too.
  // kNoTicket: nothing happens.
  virtual void unpark(std::int32_t ticket) noexcept = 0;
  // The sequence whose cells are under the ticket.
  [[nodiscard]] virtual std::int32_t sequence_of(std::int32_t ticket) const noexcept = 0;

  // The form of a part's bytes, as StatePieces has it: bytes of a cell in each tensor; empty: a
  // part is a state as llama.h writes it.
  [[nodiscard]] virtual std::span<const std::uint32_t> part_rows() const noexcept { return {}; }
  // The slot's first two cells as a state of llama.h's; the slot holds at least kParkMin. What was
  // computed last is in its cells then. Empty: there is none to be had.
  [[nodiscard]] virtual std::vector<std::byte> sample_state(const Slot& slot) {
    static_cast<void>(slot);
    return {};
  }

  // Cells [first, first + n) of the sequence as bytes; `to`: as many as part_bytes() says. False:
  // it failed.
  [[nodiscard]] virtual bool copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                                       std::span<std::byte> to) = 0;
  // The part's tokens follow those that the slot holds. False: it does not fit there, or no cells
  // are free; the slot is as before.
  [[nodiscard]] virtual bool restore_part(Slot& slot, std::span<const TokenId> tokens,
                                          std::span<const std::byte> part) = 0;

  // The ticket's cells of these tokens, kBookCells at most, become the slot's too. They follow
  // those that it holds.
  virtual void lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) = 0;
  // The first n cells of `from` become those of `to` as well; kBookCells at most that it did not
  // have. All that `to` holds are first cells of `from`.
  virtual void share(const Slot& from, Slot& to, std::int32_t n) = 0;
  // All cells of the ticket, which ends here, become those of a slot that holds none.
  virtual void give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) = 0;

  // The slot's cells are free as soon as they are needed, or swept.
  virtual void discard(Slot& slot) noexcept = 0;
  // Frees cells of the slot beyond n_keep, the last ones first and kBookCells at most.
  virtual void cut(Slot& slot, std::int32_t n_keep) noexcept = 0;
  // Frees cells that are nobody's, kBookCells at most. False: there are none.
  virtual bool sweep() noexcept = 0;

  // Microseconds since the last call in which the step before went on: the next one would have
  // waited for its end.
  [[nodiscard]] virtual std::int64_t take_waited_us() noexcept { return 0; }

 protected:
  // A part is one allocation, and one turn must have room for it.
  [[nodiscard]] static constexpr std::int32_t part_cells_max(std::size_t cell_bytes) noexcept {
    constexpr std::size_t kPartBytes = std::size_t{2} << 20U;
    constexpr std::size_t kPartCells = 512;
    return static_cast<std::int32_t>(
        std::clamp(kPartBytes / cell_bytes, std::size_t{1}, kPartCells));
  }
};

}  // namespace unpaced
