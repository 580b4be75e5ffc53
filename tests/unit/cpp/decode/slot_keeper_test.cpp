// The keeper's turns, over a store of cells that are tokens.
#include <chrono>
#include <utility>
#include <vector>

#include "check.h"
#include "seats.h"

namespace slot_keeper_test {
namespace {

using unpaced::CellStore;
using unpaced::RequestSpec;
using unpaced::TokenId;
using unpaced::test::prompt_of;
using unpaced::test::Seats;
using unpaced::test::spec_of;
using unpaced::test::TokenStore;

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
  // Slow cells: parts of one or two, of more where the machine was busy. Eight parts if they grew.
  CHECK(store.n_copied > 8);
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
  CHECK(store.n_copied < 300);  // of 1535 cells; a dozen, unless the machine pauses
}

TEST(a_prompt_comes_back_in_turns_while_others_decode) {
  Seats seats(2, -1, Seats::kShortTurnUs);
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
  CHECK_EQ(store.n_cells_copied, 300);  // in how many parts hangs on what else runs
}

// Two long texts take turns where there are cells for one of them and a little more: what comes
// back waits for what goes.
TEST(a_prompt_comes_back_where_cells_are_short) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  store.n_all = 1000;
  seats.end(0, prompt_of(700));
  std::size_t slot = 1;
  for (int i = 0; i < 6; ++i, slot = 1 - slot) {
    const TokenId base = i % 2 == 0 ? 5000 : 1000;
    RequestSpec spec = spec_of(prompt_of(250, base));
    seats.submit(slot, spec);
    for (std::int32_t n = 0; !seats.turn(slot); ++n) REQUIRE(n < 1000);
    if (i > 0) CHECK(seats.slots[slot].n_cells() >= 250);
    seats.end(slot, prompt_of(700, base));
  }
}

TEST(copies_whose_cells_were_needed_are_given_up) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(100));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  store.lose_parked();
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
  Seats seats(1, -1, Seats::kShortTurnUs);
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
// Parts are at their largest then. How long they take is measured, and the machine has its pauses.
void grow_parts(Seats& seats) {
  const TokenStore& store = seats.stepper.store;
  for (TokenId first = 20'000;; first += 1000) {
    const std::int32_t n_before = store.n_copied;
    seats.end(1, prompt_of(512, first));
    RequestSpec other = spec_of(prompt_of(10, 9000));
    seats.submit(0, other);
    while (!seats.turn(0)) {
    }
    seats.finish_work();
    seats.end(0, {});
    if (store.n_copied == n_before + 1) return;
  }
}

TEST(on_the_cpu_a_newcomer_waits_for_one_part_of_a_copy_and_no_more) {
  for (const bool is_on_cpu : {true, false}) {
    for (const std::int32_t n_displaced : {10, 500, 513, 3000}) {
      Seats seats(2);
      TokenStore& store = seats.stepper.store;
      store.is_on_cpu = is_on_cpu;
      grow_parts(seats);
      const std::int32_t n_before = store.n_copied;
      seats.end(0, prompt_of(n_displaced));
      RequestSpec newcomer = spec_of(prompt_of(50, 5000));
      seats.submit(0, newcomer);
      store.part_time = std::chrono::milliseconds(2);  // it fills a turn, or more
      CHECK(seats.turn(0) || seats.turn(0));
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

}  // namespace
}  // namespace slot_keeper_test
