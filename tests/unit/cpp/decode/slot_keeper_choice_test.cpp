// The keeper copies what is kept, or has it computed where that is quicker; and its memory has a
// limit.
#include <algorithm>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "seats.h"

namespace slot_keeper_choice_test {
namespace {

using unpaced::RequestSpec;
using unpaced::TokenId;
using unpaced::test::prompt_of;
using unpaced::test::Seats;
using unpaced::test::spec_of;
using unpaced::test::TokenStore;

constexpr std::chrono::microseconds kPart = std::chrono::milliseconds(4);

// What the slot holds goes to host memory: another request takes its place, and ends without a
// trace.
void displace(Seats& seats) {
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  while (!seats.turn(0)) {
  }
  seats.finish_work();
  seats.end(0, {});
}

// A request for the prompt; returns the cells that it begins with. They are kept if it computes.
std::int32_t serve(Seats& seats, const std::vector<TokenId>& prompt) {
  RequestSpec spec = spec_of(prompt);
  seats.submit(0, spec);
  while (!seats.turn(0)) {
  }
  const std::int32_t n = seats.slots[0].n_cells();
  CHECK(std::equal(prompt.begin(), prompt.begin() + std::min<std::ptrdiff_t>(n, 600),
                   seats.slots[0].cells.begin()));
  seats.end(0, prompt);
  displace(seats);
  return n;
}

TEST(where_copying_is_quicker_it_copies) {
  Seats seats(1);
  seats.stepper.token_us = 1e6;
  seats.end(0, prompt_of(600));
  displace(seats);
  for (int i = 0; i < 20; ++i) CHECK_EQ(serve(seats, prompt_of(600)), 600);
  CHECK_EQ(seats.counters.n_cache_copied.get(), 20U);
  CHECK_EQ(seats.counters.n_cache_computed.get(), 0U);
  CHECK_EQ(seats.counters.n_cache_tried.get(), 0U);
  CHECK(seats.counters.cache_cell_ns.get() > 0);
}

// A short prompt whose answer was long: its part comes back each time, and all of it is there
// still.
TEST(of_a_state_that_is_mostly_of_no_use_a_part_is_copied) {
  Seats seats(1);
  seats.stepper.token_us = 1e6;
  seats.end(0, prompt_of(600));
  displace(seats);
  const std::size_t n_bytes = seats.counters.n_cache_bytes.get();
  for (std::uint64_t i = 1; i < 20; ++i) {
    RequestSpec spec = spec_of(prompt_of(60));
    seats.submit(0, spec);
    while (!seats.turn(0)) {
    }
    CHECK(seats.slots[0].n_cells() >= 60);
    seats.end(0, prompt_of(600));  // the same answer
    displace(seats);
    CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
    CHECK_EQ(seats.counters.n_cache_bytes.get(), n_bytes);
    CHECK_EQ(seats.counters.n_cache_copied.get(), i);
  }
  CHECK_EQ(serve(seats, prompt_of(600)), 600);
}

// It ends before all of it has come.
TEST(what_was_lent_is_there_again_if_the_request_ends) {
  Seats seats(1, -1, Seats::kShortTurnUs);
  TokenStore& store = seats.stepper.store;
  seats.stepper.token_us = 1e6;
  seats.end(0, prompt_of(3000));
  displace(seats);
  store.part_time = kPart;
  RequestSpec spec = spec_of(prompt_of(700));
  seats.submit(0, spec);
  CHECK(!seats.turn(0));
  seats.end(0, {});
  store.part_time = {};
  seats.finish_work();
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  CHECK_EQ(serve(seats, prompt_of(3000)), 3000);
}

TEST(where_computing_is_quicker_it_computes_and_the_state_stays) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.stepper.token_us = 0.01;
  store.part_time = kPart;
  seats.end(0, prompt_of(600));
  displace(seats);
  // The first parts say what copying takes; the rest is computed.
  const std::int32_t n_first = serve(seats, prompt_of(600));
  CHECK(n_first > 0 && n_first < 600);
  const std::int32_t n_parts = store.n_restored;
  CHECK(n_parts >= 4);
  for (std::uint64_t i = 2; i < 6; ++i) {
    CHECK_EQ(serve(seats, prompt_of(600)), 0);
    CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
    CHECK_EQ(seats.counters.n_cache_bytes.get(), 600 * sizeof(TokenId));
    CHECK_EQ(seats.counters.n_cache_computed.get(), i);
  }
  CHECK_EQ(store.n_restored, n_parts);
  CHECK_EQ(seats.counters.n_cache_copied.get(), 0U);
}

TEST(the_request_is_told_which_it_was) {
  const auto told = [](Seats& seats) {
    RequestSpec spec = spec_of(prompt_of(600));
    seats.submit(0, spec);
    for (;;) {
      seats.keeper.work(seats.stepper, seats.slots);
      if (const auto ready = seats.keeper.next_ready()) {
        seats.end(0, prompt_of(600));
        displace(seats);
        return std::pair(ready->takeover.n_copied, ready->takeover.n_computed);
      }
    }
  };
  for (const bool is_slow : {false, true}) {
    Seats seats(1);
    seats.end(0, prompt_of(600));
    displace(seats);
    seats.stepper.token_us = is_slow ? 0.01 : 1e6;
    seats.stepper.store.part_time = kPart;
    const auto [n_copied, n_computed] = told(seats);
    CHECK_EQ(n_copied + n_computed, 600);
    CHECK_EQ(n_computed > 0, is_slow);
    CHECK(told(seats) == (is_slow ? std::pair(0, 600) : std::pair(600, 0)));
  }
}

// Computing is as quick as copying alone, but the others' steps come between the copies.
TEST(the_steps_of_others_make_copies_longer) {
  for (const bool is_beside : {false, true}) {
    Seats seats(2, -1, Seats::kShortTurnUs);
    TokenStore& store = seats.stepper.store;
    seats.end(0, prompt_of(600));
    displace(seats);
    RequestSpec stream = spec_of(prompt_of(20, 9000));
    seats.submit(1, stream);
    while (!seats.turn(1)) {
    }
    store.part_time = kPart;
    seats.stepper.token_us = 1000;
    seats.stepper.a_step_us = is_beside ? 1e6 : 0;
    const std::int32_t n = serve(seats, prompt_of(600));
    if (is_beside) CHECK(n < 600);
    if (!is_beside) CHECK_EQ(n, 600);
  }
}

TEST(it_copies_again_when_copies_have_become_quicker) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.stepper.token_us = 5;  // 3 ms
  store.part_time = 2 * kPart;
  seats.end(0, prompt_of(600));
  displace(seats);
  for (int i = 0; i < 3; ++i) serve(seats, prompt_of(600));
  CHECK_EQ(serve(seats, prompt_of(600)), 0);
  store.part_time = {};
  std::int32_t n = 0;
  while (serve(seats, prompt_of(600)) < 600) REQUIRE(++n < 3000);
  CHECK(seats.counters.n_cache_tried.get() > 0);
}

// Chunks that may move serve in ways that nobody knows before.
TEST(where_chunks_may_move_it_copies) {
  Seats seats(1);
  seats.stepper.token_us = 0.01;
  seats.stepper.store.part_time = kPart;
  seats.end(0, prompt_of(600));
  displace(seats);
  RequestSpec spec = spec_of(prompt_of(600));
  spec.n_cache_reuse = 32;
  seats.submit(0, spec);
  while (!seats.turn(0)) {
  }
  CHECK_EQ(seats.slots[0].n_cells(), 600);
}

// --- the limit -------------------------------------------------------------------------------

std::size_t n_bytes_of(const Seats& seats) {
  return seats.counters.n_cache_bytes.get() + seats.counters.n_cache_early_bytes.get();
}

TEST(what_is_on_its_way_back_counts_until_it_is_there) {
  constexpr std::size_t kMax = 1000 * sizeof(TokenId);
  Seats seats(2, kMax, Seats::kShortTurnUs);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(900));
  displace(seats);
  store.part_time = kPart;
  RequestSpec again = spec_of(prompt_of(900));
  seats.submit(0, again);
  CHECK(!seats.turn(0));
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 900 * sizeof(TokenId));
  // What another slot held finds no room meanwhile.
  seats.end(1, prompt_of(300, 20'000));
  RequestSpec other = spec_of(prompt_of(10, 30'000));
  seats.submit(1, other);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 900 * sizeof(TokenId));
  seats.end(1, {});
  // It is given up, and there again.
  seats.end(0, {});
  seats.keeper.work(seats.stepper, seats.slots);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 900 * sizeof(TokenId));
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
}

// Requests come, wait, are given up and end in any order: what is kept, on its way in either
// direction and copied ahead of time never takes more together.
TEST(the_memory_never_takes_more_than_its_limit) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    constexpr std::size_t kSlots = 3;
    const std::size_t n_max = sizeof(TokenId) * (200 + random() % 3000);
    Seats seats(kSlots, static_cast<std::int64_t>(n_max));
    seats.stepper.token_us = static_cast<double>(random() % 3);
    seats.stepper.store.n_all = 20'000;
    seats.stepper.store.is_on_cpu = random() % 2 == 0;
    std::vector<RequestSpec> specs(kSlots);
    for (int i = 0; i < 400; ++i) {
      const std::size_t slot = random() % kSlots;
      const unpaced::Slot& its = seats.slots[slot];
      const auto n = static_cast<std::int32_t>(2 + random() % 700);
      const auto prompt = prompt_of(n, 10'000 * static_cast<TokenId>(1 + random() % 6));
      switch (random() % 4) {
        case 0:
          if (its.active()) break;
          specs[slot] = spec_of(prompt);
          seats.submit(slot, specs[slot]);
          break;
        case 1:
          if (its.phase == unpaced::SlotPhase::kDecode) seats.end(slot, its.spec->prompt);
          break;
        case 2:  // a request is given up before it begins
          if (its.phase == unpaced::SlotPhase::kSeating) seats.end(slot, its.cells);
          break;
        default:
          if (random() % 2 == 0) seats.rest();
          seats.turn(slot);
      }
      for (unpaced::Slot& each : seats.slots) {
        const bool is_ready = each.phase == unpaced::SlotPhase::kSeating && random() % 3 == 0;
        if (is_ready) seats.turn(static_cast<std::size_t>(each.id));
      }
      CHECK(n_bytes_of(seats) <= n_max);
    }
  }
}

}  // namespace
}  // namespace slot_keeper_choice_test
