// The keeper's turns where prompts share their beginning.
#include <cstdint>
#include <functional>
#include <vector>

#include "check.h"
#include "seats.h"

namespace shared_prompts_test {
namespace {

using unpaced::RequestSpec;
using unpaced::Slot;
using unpaced::SlotPhase;
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

TEST(a_prompt_whose_cells_are_lent_comes_back_without_a_copy) {
  for (const std::int32_t n_shared : {1, 100}) {
    Lent lent(2, n_shared);
    Seats& seats = lent.seats;
    TokenStore& store = seats.stepper.store;
    CHECK_EQ(seats.slots[0].n_cells(), n_shared);
    RequestSpec again = spec_of(prompt_of(310));
    seats.submit(1, again);
    CHECK(store.parked.empty());
    CHECK(seats.turn(1));
    CHECK_EQ(seats.slots[1].n_cells(), 300);
    CHECK_EQ(store.n_restored, 0);
    CHECK_EQ(store.index().n_common(seats.slots[0].sequence, seats.slots[1].sequence), n_shared);
    CHECK_EQ(store.n_taken(seats.slots), 300);
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

// --- requests that run at the same time --------------------------------------------------------

// Slot i runs `prompt`, of which it holds n tokens.
void run(Seats& seats, std::size_t i, RequestSpec& spec, std::int32_t n) {
  seats.submit(i, spec);
  CHECK(seats.turn(i));
  seats.slots[i].phase = n < std::ssize(spec.prompt) ? SlotPhase::kPrefill : SlotPhase::kDecode;
  seats.slots[i].cells.assign(spec.prompt.begin(), spec.prompt.begin() + n);
}

TEST(a_prefix_that_a_running_request_holds_is_shared_at_once) {
  Seats seats(3);
  RequestSpec first = spec_of(prompt_that_shares(200, 50));
  run(seats, 0, first, 250);
  RequestSpec second = spec_of(prompt_of(230));
  seats.submit(1, second);
  CHECK(seats.turn(1));
  CHECK(seats.slots[1].cells == prompt_of(200));
  const TokenStore& store = seats.stepper.store;
  CHECK_EQ(store.index().n_common(seats.slots[0].sequence, seats.slots[1].sequence), 200);
  CHECK_EQ(store.n_taken(seats.slots), 250);
  CHECK_EQ(seats.counters.n_prefix_waits.get(), 0U);
}

TEST(those_who_come_while_it_is_computed_wait_for_the_common_part_alone) {
  Seats seats(3);
  RequestSpec first = spec_of(prompt_that_shares(200, 50));
  run(seats, 0, first, 100);
  RequestSpec second = spec_of(prompt_of(230));
  RequestSpec third = spec_of(prompt_of(210));
  seats.submit(1, second);
  seats.submit(2, third);
  CHECK_EQ(seats.counters.n_prefix_waits.get(), 2U);
  CHECK(!seats.turn(1));
  seats.slots[0].cells = prompt_of(200);
  CHECK(seats.turn(1));
  CHECK(seats.turn(2));
  CHECK(seats.slots[1].cells == prompt_of(200));
  // Of the second one nothing is there yet that the third could have instead.
  CHECK(seats.slots[2].cells == prompt_of(200));
  CHECK_EQ(seats.stepper.store.n_taken(seats.slots), 200);
}

TEST(where_the_one_that_computes_it_leaves_the_next_one_goes_on) {
  for (const std::int32_t n_left : {0, 20, 100}) {
    Seats seats(4);
    RequestSpec first = spec_of(prompt_that_shares(200, 50));
    run(seats, 0, first, n_left);
    std::vector<RequestSpec> others(3, spec_of(prompt_of(230)));
    for (std::size_t i = 0; i < 3; ++i) seats.submit(i + 1, others[i]);
    CHECK(!seats.turn(1));
    seats.end(0, prompt_of(n_left));
    CHECK(seats.turn(1));  // with what the first one has left, where that is enough to be shared
    CHECK_EQ(seats.slots[1].n_cells(), n_left < 32 ? 0 : n_left);
    seats.slots[1].phase = SlotPhase::kPrefill;
    CHECK(!seats.turn(2));
    CHECK(!seats.turn(3));
    seats.slots[1].cells = prompt_of(229);
    CHECK(seats.turn(2));
    CHECK(seats.turn(3));
    CHECK(seats.slots[3].cells == prompt_of(229));
  }
}

TEST(waiting_for_one_another_ends) {
  Seats seats(4);
  std::vector<RequestSpec> specs(4, spec_of(prompt_of(300)));
  for (std::size_t i = 0; i < 4; ++i) seats.submit(i, specs[i]);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(seats.turn(i));
    CHECK(!seats.turn(i + 1));
    seats.end(i, {});  // cancelled before it has computed anything
  }
  CHECK(seats.turn(3));
}

TEST(what_a_waiting_request_is_to_share_is_not_kept_for_it_by_its_slot) {
  Seats seats(2);
  RequestSpec first = spec_of(prompt_of(300));
  run(seats, 0, first, 100);
  seats.end(1, prompt_of(120));  // less than what it waits for
  RequestSpec second = spec_of(prompt_of(290));
  seats.submit(1, second, false);
  CHECK(seats.slots[1].cells.empty());
  CHECK(!seats.turn(1));
  seats.slots[0].cells = prompt_of(290);
  CHECK(seats.turn(1));
  CHECK_EQ(seats.slots[1].n_cells(), 289);  // its last token is computed
}

TEST(what_is_not_shared) {
  const auto n_shared = [](const std::function<void(Slot&, RequestSpec&, RequestSpec&)>& change) {
    Seats seats(2);
    RequestSpec first = spec_of(prompt_of(300));
    RequestSpec second = spec_of(prompt_of(300));
    change(seats.slots[0], first, second);
    run(seats, 0, first, 300);
    change(seats.slots[0], first, second);
    seats.submit(1, second);
    CHECK(seats.turn(1));
    return seats.slots[1].n_cells();
  };
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec&) {}), 299);
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.cache_domain = 1; }), 0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec& first, RequestSpec&) { first.cache_domain = 1; }), 0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.lora_scales = {1}; }), 0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.cache_prompt = false; }),
           0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec& first, RequestSpec&) { first.cache_prompt = false; }),
           0);
  CHECK_EQ(
      n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.prompt_logprobs = true; }), 0);
  CHECK_EQ(n_shared([](Slot& slot, RequestSpec&, RequestSpec&) { slot.has_moved_cells = true; }),
           0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.prompt.resize(32); }), 0);
  CHECK_EQ(n_shared([](Slot&, RequestSpec&, RequestSpec& second) { second.prompt.resize(33); }),
           32);
}

// Too little of it for the whole to be taken out of the cache.
TEST(a_parked_prompt_lends_what_another_one_begins_with) {
  Seats seats(1);
  TokenStore& store = seats.stepper.store;
  seats.end(0, prompt_of(300));
  RequestSpec other = spec_of(prompt_of(50, 5000));
  seats.submit(0, other);
  CHECK(seats.turn(0));
  CHECK_EQ(store.parked.size(), 1U);
  Seats two(2);
  two.stepper.store.part_time = std::chrono::milliseconds(2);
  two.end(0, prompt_of(300));
  RequestSpec busy = spec_of(prompt_of(50, 5000));
  two.submit(0, busy);
  CHECK(two.turn(0));
  RequestSpec brief = spec_of(prompt_that_shares(60, 30));
  two.submit(1, brief);
  CHECK(two.turn(1));
  CHECK(two.slots[1].cells == prompt_of(60));
  CHECK_EQ(two.stepper.store.parked.size(), 1U);
  CHECK_EQ(two.stepper.store.n_taken(two.slots), 300);
}

// One like it that has been copied to host memory would fill cells of its own.
TEST(what_cells_hold_does_not_come_back_from_host_memory) {
  Seats seats(2);
  TokenStore& store = seats.stepper.store;
  const auto prompt_of_its_own = [](TokenId own) {
    std::vector<TokenId> prompt = prompt_of(200);
    for (TokenId i = 0; i < 40; ++i) prompt.push_back(own + i);
    return prompt;
  };
  RequestSpec busy = spec_of(prompt_of(50, 5000));
  for (const TokenId own : {6000, 7000}) {
    const bool is_copied = own == 6000;
    if (!is_copied) store.part_time = std::chrono::milliseconds(2);
    seats.end(0, prompt_of_its_own(own));
    seats.submit(0, busy);
    CHECK(seats.turn(0));
    if (is_copied) seats.finish_work();
    CHECK_EQ(store.parked.size(), is_copied ? 0U : 1U);
  }
  RequestSpec third = spec_of(prompt_of_its_own(8000));
  seats.submit(1, third);
  CHECK(seats.turn(1));
  CHECK_EQ(store.n_restored, 0);
  CHECK(seats.slots[1].cells.size() >= 200);
  CHECK_EQ(store.n_taken(seats.slots), 240);
}

// More than one call's cells.
TEST(a_long_prefix_is_shared_in_parts) {
  Seats seats(2);
  RequestSpec first = spec_of(prompt_of(10000));
  run(seats, 0, first, 10000);
  RequestSpec second = spec_of(prompt_of(10000));
  seats.submit(1, second);
  CHECK(seats.turn(1));
  CHECK_EQ(seats.slots[1].n_cells(), 9999);
  CHECK_EQ(seats.stepper.store.n_taken(seats.slots), 10000);
}

}  // namespace
}  // namespace shared_prompts_test
