// Slots and their keeper as the decode thread has them, without one: the store's cells are tokens.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
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
  std::int32_t n_taken(std::span<const Slot> slots) const noexcept override {
    std::vector<PrefixIndex::Held> all;
    for (const Slot& slot : slots) all.push_back({slot.sequence, slot.n_cells()});
    for (const auto& [ticket, tokens] : parked) {
      all.push_back({sequences.at(ticket), static_cast<std::int32_t>(tokens.size())});
    }
    return books.n_distinct(all);
  }
  const PrefixIndex& index() const noexcept override { return books; }
  std::int32_t sequence_of(std::int32_t ticket) const noexcept override {
    return sequences.at(ticket);
  }
  std::int32_t park(Slot& slot) override {
    if (is_full()) return kNoTicket;
    parked[next] = std::move(slot.cells);
    sequences[next] = std::exchange(slot.sequence, free_sequences.back());
    free_sequences.pop_back();
    slot.cells.clear();
    return next++;
  }
  bool holds(std::int32_t ticket) const noexcept override { return parked.contains(ticket); }
  void unpark(std::int32_t ticket) noexcept override {
    if (!holds(ticket)) return;
    leave(parked.at(ticket).size());
    drop(ticket);
  }
  bool copy_part(std::int32_t sequence, std::int32_t first, std::int32_t n,
                 std::span<std::byte> to) override {
    std::this_thread::sleep_for(part_time + n * cell_time);
    ++n_copied;
    n_cells_copied += n;
    const auto of =
        std::ranges::find(sequences, sequence, [](const auto& it) { return it.second; });
    const auto slot = std::ranges::find(slots, sequence, &Slot::sequence);
    REQUIRE(of != sequences.end() || slot != slots.end());
    const std::vector<TokenId>& tokens = slot != slots.end() ? slot->cells : parked.at(of->first);
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
    books.share(sequences.at(ticket), slot.sequence, slot.n_cells());
    ++n_book_calls;
  }
  void share(const Slot& from, Slot& to, std::int32_t n) override {
    CHECK(n <= from.n_cells());
    CHECK(n - to.n_cells() <= kBookCells);
    CHECK(std::equal(to.cells.begin(), to.cells.end(), from.cells.begin()));
    to.cells.assign(from.cells.begin(), from.cells.begin() + n);
    books.share(from.sequence, to.sequence, n);
    ++n_book_calls;
  }
  void give_back(std::int32_t ticket, Slot& slot, std::span<const TokenId> tokens) override {
    CHECK(slot.cells.empty());
    CHECK(std::ranges::equal(parked.at(ticket), tokens));
    slot.cells.assign(tokens.begin(), tokens.end());
    std::swap(slot.sequence, sequences.at(ticket));
    drop(ticket);
  }
  void discard(Slot& slot) noexcept override {
    leave(slot.cells.size());
    slot.cells.clear();
    books.cut(slot.sequence, 0);
  }
  void cut(Slot& slot, std::int32_t n_keep) noexcept override {
    CHECK(n_keep < slot.n_cells());
    slot.cells.resize(static_cast<std::size_t>(std::max(n_keep, slot.n_cells() - kBookCells)));
    books.cut(slot.sequence, slot.n_cells());
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
  bool copies_early() const noexcept override { return !is_on_cpu; }

  // The ticket's cells are gone, or another one's.
  void drop(std::int32_t ticket) noexcept {
    books.cut(sequences.at(ticket), 0);
    free_sequences.push_back(sequences.at(ticket));
    sequences.erase(ticket);
    parked.erase(ticket);
  }
  // A running request needed all cells that are parked.
  void lose_parked() noexcept {
    while (!parked.empty()) drop(parked.begin()->first);
  }
  void leave(std::size_t n) noexcept { n_left += static_cast<std::int32_t>(n); }

  std::span<const Slot> slots;
  std::int32_t n_all = 4096;
  std::size_t n_tickets = 4;
  std::chrono::microseconds part_time{0};
  std::chrono::microseconds cell_time{0};
  bool fails = false;
  std::map<std::int32_t, std::vector<TokenId>> parked;
  // As LlamaCellStore has them, by ticket; slots begin with their ids.
  std::map<std::int32_t, std::int32_t> sequences;
  std::vector<std::int32_t> free_sequences = {19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8};
  PrefixIndex books{20};
  std::int32_t next = 0;
  std::int32_t n_left = 0;  // cells that are nobody's
  std::int32_t n_book_calls = 0;
  std::int64_t waited_us = 0;
  bool is_on_cpu = false;
  std::int32_t n_copied = 0;
  std::int32_t n_cells_copied = 0;
  std::int32_t n_restored = 0;
};

class StoreStepper final : public Stepper {
 public:
  std::int32_t n_ctx() const noexcept override { return 4096; }
  std::int32_t begin(Slot& slot) override { return slot.n_cells(); }
  void step(std::span<Slot>, EventPublisher&) override {}
  void forget(Slot& slot) noexcept override { store.discard(slot); }
  CellStore* cell_store() noexcept override { return &store; }
  double prompt_us(std::int32_t n, std::int32_t n_rest, std::int32_t) const noexcept override {
    return token_us * (n - n_rest);
  }
  double step_us(std::int32_t, std::int32_t) const noexcept override { return a_step_us; }

  // What computing is known to take; 0: nothing is known.
  double token_us = 0;
  double a_step_us = 0;
  TokenStore store;
};

// Slots as the decode thread has them, without one.
struct Seats {
  // A turn of a second ends with what there is to do, however slow the machine is; one as servers
  // have it may end anywhere.
  static constexpr std::int64_t kLongTurnUs = 1'000'000;
  static constexpr std::int64_t kShortTurnUs = unpaced::SlotKeeperOptions{}.turn_us;

  explicit Seats(std::size_t n, std::int64_t n_bytes_max = -1, std::int64_t turn_us = kLongTurnUs)
      : slots(n),
        keeper({.cache_bytes_max = n_bytes_max,
                .cache_idle_slots = true,
                .clear_idle_slots = true,
                .turn_us = turn_us},
               static_cast<std::int32_t>(n), counters) {
    for (std::size_t i = 0; i < n; ++i) {
      slots[i].id = slots[i].sequence = static_cast<std::int32_t>(i);
    }
    stepper.store.slots = slots;
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
    if (keeper.awaits_prefixes()) keeper.share_prefixes(stepper, slots);
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
  // Nobody asks for anything, for as long as there is something to copy.
  void rest() {
    while (keeper.copy_early(stepper, slots)) {
    }
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
