// Slots and their keeper as the decode thread has them, without one: the store's cells are tokens.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "decode/slot_keeper.h"
#include "scripted_stepper.h"

namespace unpaced::test {

class TokenStore final : public CellStore {
 public:
  std::int32_t n_cells() const noexcept override { return n_all; }
  std::int32_t n_parked() const noexcept override {
    std::size_t n = 0;
    for (const auto& [ticket, tokens] : parked) n += tokens.size();
    return static_cast<std::int32_t>(n);
  }
  bool is_full() const noexcept override { return parked.size() == n_tickets; }
  void measure(const Slot&) override {}
  std::size_t part_bytes(std::int32_t n) const noexcept override {
    return static_cast<std::size_t>(n) * sizeof(TokenId);
  }
  std::int32_t n_part_max() const noexcept override { return 512; }
  std::int32_t sequence_of(std::int32_t ticket) const noexcept override { return ticket; }
  std::int32_t park(Slot& slot) override {
    if (is_full()) return kNoTicket;
    families[next] = std::exchange(family_of(slot), kNoTicket);
    parked[next] = std::move(slot.cells);
    slot.cells.clear();
    return next++;
  }
  bool holds(std::int32_t ticket) const noexcept override { return parked.contains(ticket); }
  void unpark(std::int32_t ticket) noexcept override {
    if (holds(ticket)) leave(parked.at(ticket).size());
    parked.erase(ticket);
  }
  bool copy_part(std::int32_t ticket, std::int32_t first, std::int32_t n,
                 std::span<std::byte> to) override {
    std::this_thread::sleep_for(part_time + n * cell_time);
    ++n_copied;
    const std::vector<TokenId>& tokens = parked.at(ticket);
    CHECK(first + n <= static_cast<std::int32_t>(tokens.size()));
    std::copy_n(reinterpret_cast<const std::byte*>(tokens.data() + first), to.size(), to.data());
    return !fails;
  }
  bool restore_part(Slot& slot, std::span<const TokenId> tokens,
                    std::span<const std::byte> part) override {
    std::this_thread::sleep_for(part_time);
    ++n_restored;
    CHECK_EQ(part.size(), tokens.size() * sizeof(TokenId));
    CHECK(std::equal(part.begin(), part.end(), reinterpret_cast<const std::byte*>(tokens.data())));
    if (fails) return false;
    slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
    return true;
  }
  void lend(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override {
    CHECK(std::ssize(tokens) <= kBookCells);
    const std::vector<TokenId>& held = parked.at(ticket);
    REQUIRE(slot.cells.size() + tokens.size() <= held.size());
    CHECK(std::equal(tokens.begin(), tokens.end(), held.begin() + slot.n_cells()));
    slot.cells.insert(slot.cells.end(), tokens.begin(), tokens.end());
    if (families.at(ticket) == kNoTicket) families[ticket] = ticket;
    family_of(slot) = families.at(ticket);
    ++n_book_calls;
  }
  bool is_lent(std::int32_t ticket) const noexcept override {
    const std::int32_t family = families.at(ticket);
    return family != kNoTicket && std::ranges::count(slot_families, family) > 0;
  }
  void give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override {
    CHECK(!is_lent(ticket));
    CHECK(slot.cells.empty());
    CHECK(std::ranges::equal(parked.at(ticket), tokens));
    slot.cells.assign(tokens.begin(), tokens.end());
    family_of(slot) = families.at(ticket);
    parked.erase(ticket);
  }
  void discard(Slot& slot) noexcept override {
    leave(slot.cells.size());
    slot.cells.clear();
    family_of(slot) = kNoTicket;
  }
  void cut(Slot& slot, std::int32_t n_keep) noexcept override {
    CHECK(n_keep < slot.n_cells());
    slot.cells.resize(static_cast<std::size_t>(std::max(n_keep, slot.n_cells() - kBookCells)));
    ++n_book_calls;
  }
  bool sweep() noexcept override {
    const bool was_untidy = n_left > 0;
    n_left = std::max(0, n_left - kBookCells);
    n_book_calls += was_untidy ? 1 : 0;
    return was_untidy;
  }
  std::int64_t take_waited_us() noexcept override { return std::exchange(waited_us, 0); }
  bool prefers_low_cells() const noexcept override { return is_on_cpu; }

  std::int32_t& family_of(const Slot& slot) {
    return slot_families.at(static_cast<std::size_t>(slot.id));
  }
  void leave(std::size_t n) noexcept { n_left += static_cast<std::int32_t>(n); }

  std::int32_t n_all = 4096;
  std::size_t n_tickets = 4;
  std::chrono::microseconds part_time{0};
  std::chrono::microseconds cell_time{0};
  bool fails = false;
  std::map<std::int32_t, std::vector<TokenId>> parked;
  // As LlamaCellStore has them: by ticket, by slot.
  std::map<std::int32_t, std::int32_t> families;
  std::vector<std::int32_t> slot_families = std::vector<std::int32_t>(4, kNoTicket);
  std::int32_t next = 0;
  std::int32_t n_left = 0;  // cells that are nobody's
  std::int32_t n_book_calls = 0;
  std::int64_t waited_us = 0;
  bool is_on_cpu = false;
  std::int32_t n_copied = 0;
  std::int32_t n_restored = 0;
};

class StoreStepper final : public Stepper {
 public:
  std::int32_t n_ctx() const noexcept override { return 4096; }
  std::int32_t begin(Slot& slot) override { return slot.n_cells(); }
  void step(std::span<Slot>, EventPublisher&) override {}
  void forget(Slot& slot) noexcept override { store.discard(slot); }
  CellStore* cell_store() noexcept override { return &store; }

  TokenStore store;
};

// Slots as the decode thread has them, without one.
struct Seats {
  explicit Seats(std::size_t n, std::int64_t n_bytes_max = -1)
      : slots(n),
        keeper({.cache_bytes_max = n_bytes_max, .cache_idle_slots = true, .clear_idle_slots = true},
               static_cast<std::int32_t>(n), counters) {
    for (std::size_t i = 0; i < n; ++i) slots[i].id = static_cast<std::int32_t>(i);
  }

  void submit(std::size_t slot, RequestSpec& spec, bool takes_over = true) {
    static unpaced::RequestId next = 1;
    spec.id = next++;
    slots[slot].spec = &spec;
    slots[slot].phase = SlotPhase::kSeating;
    keeper.make_way(stepper, slots, {.slot = &slots[slot], .takes_over = takes_over}, spec);
  }
  // A turn of the loop; true if the slot's request began.
  bool turn(std::size_t slot) {
    keeper.work(stepper, slots);
    keeper.end_turn();
    const auto ready = keeper.next_ready();
    const bool begins = ready && ready->slot == &slots[slot];
    if (begins) slots[slot].phase = SlotPhase::kDecode;
    return begins;
  }
  void end(std::size_t slot, std::vector<TokenId> cells) {
    slots[slot].cells = std::move(cells);
    slots[slot].phase = SlotPhase::kIdle;
    slots[slot].spec = nullptr;
  }
  void finish_work() {
    while (keeper.has_work()) {
      keeper.work(stepper, slots);
      keeper.end_turn();
    }
  }

  std::vector<Slot> slots;
  Counters counters;
  StoreStepper stepper;
  SlotKeeper keeper;
};

inline RequestSpec spec_of(std::vector<TokenId> prompt) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  return spec;
}

}  // namespace unpaced::test
