// The keeper's turns where prompts share their beginning.
#include <cstdint>
#include <utility>
#include <vector>

#include "check.h"
#include "seats.h"

namespace {

using unpaced::RequestSpec;
using unpaced::TokenId;
using unpaced::test::prompt_of;
using unpaced::test::Seats;
using unpaced::test::spec_of;
using unpaced::test::TokenStore;

std::vector<TokenId> prompt_that_shares(std::int32_t n_shared, std::int32_t n_own) {
  std::vector<TokenId> prompt = prompt_of(n_shared);
  const std::vector<TokenId> own = prompt_of(n_own, 5000);
  prompt.insert(prompt.end(), own.begin(), own.end());
  return prompt;
}

// A prompt of 300 that slot 0 has parked, with its first cells lent to the request that took over.
struct Lent {
  explicit Lent(std::size_t n_slots, std::int32_t n_shared = 1)
      : seats(n_slots), first(spec_of(prompt_that_shares(n_shared, 50))) {
    seats.stepper.store.part_time = std::chrono::milliseconds(2);
    seats.end(0, prompt_of(300));
    seats.submit(0, first);
    CHECK(seats.turn(0));
  }

  Seats seats;
  RequestSpec first;
};

// What another request's prompt shares cells with stays where it is: a slot's cells may move.
TEST(a_prompt_whose_cells_are_lent_comes_back_as_a_copy) {
  for (const std::int32_t n_shared : {1, 100}) {
    Lent lent(2, n_shared);
    Seats& seats = lent.seats;
    TokenStore& store = seats.stepper.store;
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
  Lent lent(1);
  Seats& seats = lent.seats;
  TokenStore& store = seats.stepper.store;
  const std::vector<TokenId>& shorter = lent.first.prompt;
  seats.end(0, shorter);
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(0, again);
  CHECK(seats.turn(0));
  CHECK_EQ(seats.slots[0].n_cells(), 300);
  CHECK_EQ(store.n_restored, 0);
  // And the other one, whose first cell the slot now has.
  seats.end(0, again.prompt);
  RequestSpec other = spec_of(shorter);
  seats.submit(0, other);
  CHECK(seats.turn(0));
  CHECK_EQ(seats.slots[0].n_cells(), 51);
  seats.finish_work();
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_lost.get(), 0U);
}

// The copy under way and what comes back do not fit beside one another.
TEST(where_cells_are_short_what_is_lent_is_copied_first) {
  Lent lent(2);
  Seats& seats = lent.seats;
  TokenStore& store = seats.stepper.store;
  store.n_all = 450;
  RequestSpec again = spec_of(prompt_of(300));
  seats.submit(1, again);
  while (!seats.turn(1)) {
    CHECK(store.n_restored == 0 || store.parked.empty());
  }
  CHECK_EQ(seats.slots[1].n_cells(), 300);
}

TEST(what_is_lost_of_a_prompt_that_comes_back_is_computed) {
  Lent lent(2);
  Seats& seats = lent.seats;
  TokenStore& store = seats.stepper.store;
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
  Lent lent(2);
  Seats& seats = lent.seats;
  TokenStore& store = seats.stepper.store;
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
  Lent lent(2);
  Seats& seats = lent.seats;
  TokenStore& store = seats.stepper.store;
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
