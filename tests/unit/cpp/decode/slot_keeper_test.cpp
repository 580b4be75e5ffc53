// The keeper's turns, over a store of cells that are tokens.
#include "decode/slot_keeper.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "check.h"
#include "scripted_stepper.h"

namespace {

using unpaced::CellStore;
using unpaced::Counters;
using unpaced::EventPublisher;
using unpaced::RequestSpec;
using unpaced::Slot;
using unpaced::SlotKeeper;
using unpaced::SlotPhase;
using unpaced::Stepper;
using unpaced::TokenId;
using unpaced::test::prompt_of;

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

RequestSpec spec_of(std::vector<TokenId> prompt) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  return spec;
}

TEST(a_request_begins_before_what_it_displaced_is_copied) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.cell_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(100));
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  CHECK(seats.turn(0));
  CHECK(store.n_copied <= 2);
  CHECK(seats.keeper.has_work());
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 400U);
  seats.finish_work();
  // Slow cells: parts of one or two, a few more where the machine was busy. Eight if they grew.
  CHECK(store.n_copied >= 25);
  CHECK(store.parked.empty());
  CHECK(seats.counters.cache_turn_us_max.get() >= 2000);
  CHECK(seats.counters.cache_us.get() >= 200'000);
}

// What a part takes with one cell alone does not count: smaller parts would take it more often.
TEST(parts_grow_where_the_cells_are_not_what_takes_time) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(1023 + 512));
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  CHECK(seats.turn(0));
  seats.finish_work();
  CHECK(store.n_copied < 30);
}

TEST(a_prompt_comes_back_in_turns_while_others_decode) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(600));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  seats.finish_work();
  store.part_time = std::chrono::milliseconds(4);
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  std::int32_t n_turns = 1;
  for (; !seats.turn(1); ++n_turns) {
    CHECK(store.n_restored <= n_turns);  // each fills a turn
    REQUIRE(n_turns < 100);
  }
  CHECK(n_turns > 1);
  const std::vector<TokenId>& cells = seats.slots[1].cells;
  CHECK(cells.size() >= 300U);  // whole parts
  CHECK(cells.size() < 600U);   // and none for nothing
  CHECK(std::equal(again.prompt.begin(), again.prompt.end(), cells.begin()));
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
}

TEST(a_prompt_that_is_still_parked_comes_back_at_once) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(200));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  RequestSpec again = spec_of(prompt_of(210));
  seats.submit(1, again);
  CHECK_EQ(seats.slots[1].n_cells(), 200);
  CHECK(store.parked.empty());
  CHECK(seats.turn(1));
  CHECK_EQ(store.n_restored, 0);
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
}

TEST(where_cells_are_short_the_request_waits_for_the_copy) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.n_all = 500;
  store.cell_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec other = spec_of(prompt_of(300, 5000));
  seats.submit(0, other);
  for (std::int32_t i = 0; !seats.turn(0); ++i) REQUIRE(i < 1000);
  CHECK(store.parked.empty());
  CHECK(store.n_copied >= 150);
}

TEST(copies_whose_cells_were_needed_are_given_up) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(100));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  store.parked.clear();
  seats.finish_work();
  CHECK_EQ(seats.counters.n_cache_lost.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 0U);
}

TEST(copies_that_fail_are_given_up) {
  Seats seats(1);
  seats.stepper.store.fails = true;
  seats.end(0, prompt_of(100));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  seats.finish_work();
  CHECK(seats.stepper.store.parked.empty());
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
}

TEST(what_cannot_be_restored_is_computed) {
  Seats seats(1);
  seats.end(0, prompt_of(100));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  seats.finish_work();
  seats.end(0, prompt_of(50, 5000));
  seats.stepper.store.fails = true;
  RequestSpec again = spec_of(prompt_of(100));
  seats.submit(0, again);
  while (!seats.turn(0)) {
  }
  CHECK(seats.slots[0].cells.empty());
}

TEST(a_request_that_ends_while_its_prompt_comes_back_leaves_it_in_the_cache) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(600));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  seats.finish_work();
  seats.end(0, {});
  store.part_time = std::chrono::milliseconds(4);
  RequestSpec cancelled = spec_of(prompt_of(600));
  seats.submit(0, cancelled);
  CHECK(!seats.turn(0));
  const std::vector<TokenId> restored = seats.slots[0].cells;
  CHECK(restored.size() < 600U);
  seats.end(0, restored);
  seats.keeper.work(seats.stepper, seats.slots);
  CHECK(!seats.keeper.has_work());
  CHECK(seats.slots[0].cells.empty());
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  store.part_time = {};
  RequestSpec again = spec_of(prompt_of(600));
  seats.submit(0, again);
  while (!seats.turn(0)) {
  }
  CHECK_EQ(seats.slots[0].n_cells(), 600);
}

TEST(more_copies_than_tickets_drop_the_oldest) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  store.n_tickets = 2;
  std::vector<RequestSpec> specs;
  specs.reserve(4);
  for (TokenId base = 1; base <= 4; ++base) {
    seats.end(0, prompt_of(100, 1000 * base));
    specs.push_back(spec_of(prompt_of(10, 9000)));
    seats.submit(0, specs.back());
    CHECK(seats.turn(0));
  }
  CHECK_EQ(store.parked.size(), 2U);
  CHECK_EQ(seats.counters.n_cache_lost.get(), 2U);
  CHECK_EQ(seats.counters.n_cache_states.get(), 2U);
}

TEST(idle_slots_are_parked_and_give_up_their_cells) {
  Seats seats(3);
  seats.end(1, prompt_of(40, 2000));
  seats.end(2, prompt_of(40, 3000));
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  CHECK(seats.slots[1].cells.empty());
  CHECK(seats.slots[2].cells.empty());
  CHECK_EQ(seats.stepper.store.parked.size(), 2U);
  CHECK(seats.turn(0));
  seats.finish_work();
  CHECK_EQ(seats.counters.n_cache_states.get(), 2U);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 320U);
}

TEST(a_limit_that_a_new_prompt_exceeds_drops_old_ones_whatever_becomes_of_them) {
  Seats seats(1, 1000);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  std::vector<RequestSpec> specs;
  specs.reserve(3);
  for (TokenId base = 1; base <= 3; ++base) {
    seats.end(0, prompt_of(200, 1000 * base));
    specs.push_back(spec_of(prompt_of(10, 9000)));
    seats.submit(0, specs.back());
    CHECK(seats.turn(0));
    CHECK_EQ(store.parked.size(), 1U);  // each drops the one before, which was under way
    CHECK_EQ(seats.counters.n_cache_bytes.get(), 800U);
  }
  CHECK_EQ(seats.counters.n_cache_lost.get(), 0U);
}

// --- what a newcomer waits for ---------------------------------------------------------------

// With the host's loop what was displaced is moved out of the low cells first, if one part holds
// it.
TEST(on_the_cpu_a_newcomer_waits_for_one_part_of_a_copy_and_no_more) {
  for (const bool is_on_cpu : {true, false}) {
    for (const std::int32_t n_displaced : {10, 500, 513, 3000}) {
      Seats seats(2);
      TokenStore& store = seats.stepper.store;
      store.is_on_cpu = is_on_cpu;
      // Parts have grown to their largest by now.
      seats.end(1, prompt_of(2000, 20'000));
      RequestSpec first = spec_of(prompt_of(10, 9000));
      seats.submit(0, first);
      CHECK(seats.turn(0));
      seats.finish_work();
      const std::int32_t n_before = store.n_copied;
      seats.end(0, prompt_of(n_displaced));
      RequestSpec newcomer = spec_of(prompt_of(50, 5000));
      seats.submit(0, newcomer);
      store.part_time = std::chrono::milliseconds(2);  // it fills a turn
      CHECK(seats.turn(0));
      const std::int32_t n_waited = store.n_copied - n_before;
      CHECK(n_waited <= 1);
      if (is_on_cpu) CHECK_EQ(n_waited, n_displaced <= 512 ? 1 : 0);
      CHECK(is_on_cpu || store.parked.empty() == (n_waited == 1 && n_displaced <= 512));
    }
  }
}

// While parts are still small, as many as there are in the largest one.
TEST(on_the_cpu_the_first_newcomer_waits_for_small_parts) {
  for (const std::int32_t n_displaced : {500, 513}) {
    Seats seats(1);
    seats.stepper.store.is_on_cpu = true;
    seats.end(0, prompt_of(n_displaced));
    RequestSpec newcomer = spec_of(prompt_of(50, 5000));
    seats.submit(0, newcomer);
    CHECK(seats.turn(0));
    CHECK_EQ(seats.stepper.store.parked.empty(), n_displaced == 500);
  }
}

// --- books -----------------------------------------------------------------------------------

TEST(what_a_newcomer_shares_with_its_slot_is_lent_a_few_cells_at_a_time) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.n_all = 100'000;
  seats.end(0, prompt_of(60'000));
  std::vector<TokenId> prompt = prompt_of(20'000);
  prompt.push_back(1);
  RequestSpec spec = spec_of(prompt);
  seats.submit(0, spec);
  CHECK_EQ(store.n_book_calls, 0);  // as many cells as there may be
  while (!seats.turn(0)) {
  }
  CHECK_EQ(seats.slots[0].n_cells(), 20'000);
  CHECK(store.n_book_calls >= 5);
  seats.finish_work();
  CHECK_EQ(store.n_left, 0);
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
}

TEST(what_a_request_does_not_reuse_is_cut_off_a_few_cells_at_a_time) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.n_all = 100'000;
  seats.end(0, prompt_of(60'000));
  RequestSpec spec = spec_of(prompt_of(40'000));
  seats.submit(0, spec, false);
  while (!seats.turn(0)) {
  }
  CHECK(seats.slots[0].n_cells() >= 40'000);
  CHECK(seats.slots[0].n_cells() <= 40'000 + CellStore::kBookCells);
  CHECK_EQ(store.n_book_calls, 4);
}

TEST(a_turn_is_no_longer_for_the_step_before_it) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(100));
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  store.waited_us = 1'000'000;
  seats.submit(0, spec);
  CHECK(seats.turn(0));
  CHECK(seats.counters.cache_turn_us_max.get() < 1'000'000);
}

// --- prompts that share their beginning --------------------------------------------------------

std::vector<TokenId> prompt_that_shares(std::int32_t n_shared, std::int32_t n_own) {
  std::vector<TokenId> prompt = prompt_of(n_shared);
  const std::vector<TokenId> own = prompt_of(n_own, 5000);
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

// What another request's prompt shares cells with stays where it is: a slot's cells may move.
TEST(a_prompt_whose_cells_are_lent_comes_back_as_a_copy) {
  for (const std::int32_t n_shared : {1, 100}) {
    Seats seats(2);
    TokenStore& store = seats.stepper.store;
    store.part_time = std::chrono::milliseconds(2);
    seats.end(0, prompt_of(300));
    RequestSpec first = spec_of(prompt_that_shares(n_shared, 50));
    seats.submit(0, first);
    CHECK(seats.turn(0));
    CHECK_EQ(seats.slots[0].n_cells(), n_shared);
    RequestSpec again = spec_of(prompt_of(310));
    seats.submit(1, again);
    CHECK_EQ(store.parked.size(), 1U);
    CHECK(!seats.turn(1));
    const std::int32_t n_copied_at_first = store.n_copied;
    while (!seats.turn(1)) {
    }
    CHECK_EQ(seats.slots[1].n_cells(), 300);
    CHECK(store.n_copied > n_copied_at_first);  // part by part
    CHECK_EQ(store.n_restored, store.n_copied);
    CHECK(store.parked.empty());
    seats.finish_work();
    CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
    CHECK_EQ(seats.counters.n_cache_lost.get(), 0U);
  }
}

// Nobody but the store has cells of what a single slot held before: it lends and gets them back.
TEST(a_prompt_whose_cells_its_own_slot_had_lent_comes_back_at_once) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec first = spec_of(prompt_that_shares(1, 50));
  seats.submit(0, first);
  CHECK(seats.turn(0));
  seats.end(0, first.prompt);
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(0, again);
  CHECK(seats.turn(0));
  CHECK_EQ(seats.slots[0].n_cells(), 300);
  CHECK_EQ(store.n_restored, 0);
  // And the other one, whose first cell the slot now has.
  seats.end(0, again.prompt);
  RequestSpec other = spec_of(first.prompt);
  seats.submit(0, other);
  CHECK(seats.turn(0));
  CHECK_EQ(seats.slots[0].n_cells(), 51);
  seats.finish_work();
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_lost.get(), 0U);
}

// The copy under way and what comes back do not fit beside one another.
TEST(where_cells_are_short_what_is_lent_is_copied_first) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.n_all = 450;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec first = spec_of(prompt_that_shares(1, 50));
  seats.submit(0, first);
  CHECK(seats.turn(0));
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  while (!seats.turn(1)) {
    CHECK(store.n_restored == 0 || store.parked.empty());
  }
  CHECK_EQ(seats.slots[1].n_cells(), 300);
}

TEST(what_is_lost_of_a_prompt_that_comes_back_is_computed) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec first = spec_of(prompt_that_shares(1, 50));
  seats.submit(0, first);
  CHECK(seats.turn(0));
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  for (std::int32_t i = 0; i < 8; ++i) CHECK(!seats.turn(1));
  store.parked.clear();  // a running request needed its cells
  while (!seats.turn(1)) {
  }
  CHECK(seats.slots[1].n_cells() > 0);
  CHECK(seats.slots[1].n_cells() < 300);
  CHECK_EQ(seats.counters.n_cache_lost.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
}

TEST(a_request_that_ends_while_its_prompt_is_copied_leaves_it_in_the_cache) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec first = spec_of(prompt_that_shares(1, 50));
  seats.submit(0, first);
  CHECK(seats.turn(0));
  RequestSpec cancelled = spec_of(prompt_of(300));
  seats.submit(1, cancelled);
  for (std::int32_t i = 0; i < 4; ++i) CHECK(!seats.turn(1));
  seats.end(1, seats.slots[1].cells);
  seats.finish_work();
  CHECK(seats.slots[1].cells.empty());
  CHECK(store.parked.empty());
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  while (!seats.turn(1)) {
  }
  CHECK_EQ(seats.slots[1].n_cells(), 300);
}

// What failed is not brought back in part for whole.
TEST(copies_of_what_comes_back_are_given_up_after_an_error) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(300));
  RequestSpec first = spec_of(prompt_that_shares(1, 50));
  seats.submit(0, first);
  CHECK(seats.turn(0));
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  for (std::int32_t i = 0; i < 4; ++i) CHECK(!seats.turn(1));
  seats.keeper.give_up(seats.stepper);
  seats.end(1, {});
  seats.finish_work();
  CHECK(store.parked.empty());
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);
}

}  // namespace

CHECK_MAIN()
