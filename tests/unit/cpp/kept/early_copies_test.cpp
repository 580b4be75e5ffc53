// What idle slots hold is copied ahead of time, and who displaces it later waits for no copy.
#include <chrono>
#include <utility>
#include <vector>

#include "check.h"
#include "seats.h"

namespace early_copies_test {
namespace {

using unpaced::RequestSpec;
using unpaced::Slot;
using unpaced::SlotPhase;
using unpaced::TokenId;
using unpaced::test::prompt_of;
using unpaced::test::Seats;
using unpaced::test::spec_of;
using unpaced::test::TokenStore;

// Another prompt takes the place of what the slot holds; returns the cells copied for that.
std::int32_t displace(Seats& seats, std::size_t slot, TokenId first) {
  const std::int32_t n_before = seats.stepper.store.n_cells_copied;
  RequestSpec spec = spec_of(prompt_of(50, first));
  seats.submit(slot, spec);
  while (!seats.turn(slot)) {
  }
  seats.finish_work();
  seats.end(slot, prompt_of(50, first));
  return seats.stepper.store.n_cells_copied - n_before;
}

// It comes back as a whole; the store compares each byte that it gets with the tokens.
void check_comes_back(Seats& seats, std::size_t slot, const std::vector<TokenId>& tokens) {
  RequestSpec again = spec_of(tokens);
  again.prompt.push_back(1);
  seats.submit(slot, again);
  while (!seats.turn(slot)) {
  }
  CHECK(seats.slots[slot].cells == tokens);
  CHECK(seats.stepper.store.n_restored > 0);
}

TEST(what_was_copied_while_nobody_asked_is_displaced_at_once) {
  Seats seats(3);
  TokenStore& store = seats.stepper.store;
  for (std::size_t i = 0; i < 3; ++i) {
    seats.end(i, prompt_of(700, 10'000 * static_cast<TokenId>(i + 1)));
  }
  seats.rest();
  CHECK(store.n_cells_copied >= 3 * 700);
  CHECK_EQ(seats.counters.n_cache_states.get(), 0U);  // the slots still have them
  CHECK_EQ(seats.slots[1].n_cells(), 700);
  const std::int32_t n_before = store.n_copied;
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  CHECK(seats.turn(0));
  CHECK(store.parked.empty());  // and the newcomer computes in the cells that they had
  CHECK_EQ(store.n_copied, n_before);
  CHECK_EQ(seats.counters.n_cache_states.get(), 3U);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 3U * 700 * sizeof(TokenId));
  seats.end(0, {});
  for (std::size_t i = 0; i < 3; ++i) {
    check_comes_back(seats, i, prompt_of(700, 10'000 * static_cast<TokenId>(i + 1)));
  }
}

TEST(a_copy_that_was_begun_is_gone_on_with) {
  Seats seats(1);
  const std::vector<TokenId> tokens = prompt_of(1000);
  seats.end(0, tokens);
  TokenStore& store = seats.stepper.store;
  while (store.n_copied < 6) CHECK(seats.keeper.copy_early(seats.stepper, seats.slots));
  CHECK(displace(seats, 0, 5000) < 1000);
  check_comes_back(seats, 0, tokens);
}

// Each answer adds cells to what its slot holds.
TEST(a_conversation_is_copied_once_and_in_large_parts) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  constexpr std::int32_t kTurns = 40;
  std::int32_t n = 0;
  for (std::int32_t turn = 0; turn < kTurns; ++turn) {
    n += 60;
    seats.end(0, prompt_of(n));
    seats.rest();
  }
  CHECK(store.n_cells_copied <= n + kTurns * 512);  // a part of each turn's before, at most
  CHECK_EQ(displace(seats, 0, 5000), 0);
  const std::int32_t n_restored = store.n_restored;
  check_comes_back(seats, 0, prompt_of(n));
  CHECK(store.n_restored - n_restored <=
        16);  // five of 512 cells; smaller ones where the machine paused
}

TEST(of_a_prompt_that_parts_from_the_copied_one_the_rest_is_copied) {
  Seats seats(1);
  std::vector<TokenId> tokens = prompt_of(1500);
  seats.end(0, tokens);
  seats.rest();
  tokens.resize(900);
  tokens.resize(1400, 3);
  seats.end(0, tokens);
  const std::int32_t n_copied = displace(seats, 0, 5000);
  CHECK(n_copied >= 500);
  CHECK(n_copied < 500 + 512);
  check_comes_back(seats, 0, tokens);
}

TEST(cells_that_are_others_than_they_were_are_copied_anew) {
  for (const auto change : {+[](Slot& slot) { slot.has_moved_cells = true; },
                            +[](Slot& slot) { slot.lora_scales = {0.5F}; },
                            +[](Slot& slot) { slot.cache_domain = 7; }}) {
    Seats seats(1);
    seats.end(0, prompt_of(300));
    seats.rest();
    change(seats.slots[0]);
    CHECK_EQ(displace(seats, 0, 5000), 300);
  }
}

TEST(nothing_is_copied_that_would_not_be_kept) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(300));
  seats.slots[0].is_throwaway = true;
  seats.end(1, prompt_of(300, 2000));
  seats.slots[1].has_moved_cells = true;
  seats.rest();
  CHECK_EQ(store.n_copied, 0);
  seats.end(1, prompt_of(1));
  seats.slots[1].has_moved_cells = false;
  seats.rest();
  CHECK_EQ(store.n_copied, 0);  // fewer than a copy is worth
}

TEST(a_running_request_is_not_copied_nor_anything_on_the_cpu) {
  for (const bool is_on_cpu : {true, false}) {
    Seats seats(1);
    seats.stepper.store.is_on_cpu = is_on_cpu;
    RequestSpec spec = spec_of(prompt_of(50));
    if (is_on_cpu) {
      seats.end(0, prompt_of(300));
    } else {
      seats.submit(0, spec);
      CHECK(seats.turn(0));
      seats.slots[0].cells = prompt_of(50);
    }
    seats.rest();
    CHECK_EQ(seats.stepper.store.n_copied, 0);
  }
}

// -cram is the limit of all, and of copies ahead of time the fourth part of it.
TEST(copies_ahead_of_time_count_as_those_in_the_cache_do) {
  constexpr std::size_t kCell = sizeof(TokenId);
  Seats seats(3, 4000 * kCell);
  TokenStore& store = seats.stepper.store;
  seats.end(1, prompt_of(600, 10'000));
  seats.end(2, prompt_of(600, 20'000));
  seats.rest();
  CHECK_EQ(seats.counters.n_cache_early_bytes.get(), 600 * kCell);  // the first one alone
  const std::int32_t n_before = store.n_cells_copied;
  seats.rest();
  CHECK_EQ(store.n_cells_copied, n_before);
  seats.slots[2].cells.clear();
  // Displaced, it leaves no room for the copy of one that runs meanwhile.
  seats.end(0, prompt_of(3900, 30'000));
  RequestSpec other = spec_of(prompt_of(10));
  seats.slots[1].spec = &other;
  seats.slots[1].phase = SlotPhase::kDecode;
  CHECK_EQ(displace(seats, 0, 5000), 3900);
  CHECK_EQ(seats.counters.n_cache_early_bytes.get(), 0U);
  seats.slots[1].phase = SlotPhase::kIdle;
  CHECK_EQ(displace(seats, 1, 6000), 600 + 50);  // the idle slot with it
}

TEST(the_oldest_prompt_goes_for_a_copy_ahead_of_time) {
  constexpr std::size_t kCell = sizeof(TokenId);
  Seats seats(1, 2000 * kCell);
  seats.stepper.store.n_all = 10'000;
  for (TokenId i = 0; i < 4; ++i) {
    seats.end(0, prompt_of(480, 10'000 * (i + 1)));
    displace(seats, 0, 5000);
  }
  const auto n_states = seats.counters.n_cache_states.get();
  CHECK(seats.counters.n_cache_bytes.get() > 1900 * kCell);
  seats.end(0, prompt_of(490, 70'000));
  seats.rest();
  CHECK_EQ(seats.counters.n_cache_early_bytes.get(), 490 * kCell);
  CHECK(seats.counters.n_cache_bytes.get() + 490 * kCell <= 2000 * kCell);
  CHECK_EQ(seats.counters.n_cache_states.get(), n_states - 1);
  CHECK_EQ(displace(seats, 0, 6000), 0);
  CHECK(seats.counters.n_cache_bytes.get() <= 2000 * kCell);
  CHECK_EQ(seats.counters.n_cache_early_bytes.get(), 0U);
  check_comes_back(seats, 0, prompt_of(490, 70'000));
}

TEST(a_newcomer_shares_the_cells_of_what_was_copied) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(600));
  seats.rest();
  const std::int32_t n_before = store.n_copied;
  std::vector<TokenId> prompt = prompt_of(100);
  prompt.push_back(1);
  RequestSpec spec = spec_of(prompt);
  seats.submit(0, spec);
  while (!seats.turn(0)) {
  }
  CHECK_EQ(seats.slots[0].n_cells(), 100);
  CHECK_EQ(store.n_restored, 0);
  CHECK_EQ(store.n_copied, n_before);
  CHECK(store.parked.empty());
}

TEST(what_is_copied_is_not_lost_with_its_cells) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(600));
  seats.rest();
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  store.lose_parked();
  while (!seats.turn(0)) {
  }
  CHECK_EQ(seats.counters.n_cache_lost.get(), 0U);
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  seats.end(0, {});
  check_comes_back(seats, 1, prompt_of(600));
}

TEST(a_copy_that_fails_leaves_the_slot_as_it_was) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(300));
  store.fails = true;
  seats.rest();
  CHECK_EQ(store.n_copied, 1);
  store.fails = false;
  seats.rest();
  CHECK_EQ(displace(seats, 0, 5000), 0);
  check_comes_back(seats, 0, prompt_of(300));
}

}  // namespace
}  // namespace early_copies_test
