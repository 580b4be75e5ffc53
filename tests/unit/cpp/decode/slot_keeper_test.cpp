// The keeper's turns, over a store of cells that are tokens.
#include "decode/slot_keeper.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "check.h"
#include "scripted_stepper.h"

namespace {

using unpaced::CellStore;
using unpaced::Counters;
using unpaced::EventPublisher;
using unpaced::RequestSpec;
using unpaced::Slot;
using unpaced::SlotKeeper;
using unpaced::SlotKeeperOptions;
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
  std::int32_t park(const Slot& slot) override {
    if (is_full()) return kNoTicket;
    parked[next] = slot.cells;
    return next++;
  }
  bool holds(std::int32_t ticket) const noexcept override { return parked.contains(ticket); }
  void unpark(std::int32_t ticket) noexcept override { parked.erase(ticket); }
  bool copy_part(std::int32_t ticket, std::int32_t first, std::int32_t n,
                 std::span<std::byte> to) override {
    std::this_thread::sleep_for(part_time);
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
    CHECK(holds(ticket));
    CHECK(slot.cells.empty());
    slot.cells.assign(tokens.begin(), tokens.end());
  }

  std::int32_t n_all = 4096;
  std::size_t n_tickets = 4;
  std::chrono::microseconds part_time{0};
  bool fails = false;
  std::map<std::int32_t, std::vector<TokenId>> parked;
  std::int32_t next = 0;
  std::int32_t n_copied = 0;
  std::int32_t n_restored = 0;
};

class StoreStepper final : public Stepper {
 public:
  std::int32_t n_ctx() const noexcept override { return 4096; }
  std::int32_t begin(Slot& slot) override { return slot.n_cells(); }
  void step(std::span<Slot>, EventPublisher&) override {}
  void forget(Slot& slot) noexcept override { slot.cells.clear(); }
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

  void submit(std::size_t slot, RequestSpec& spec) {
    static unpaced::RequestId next = 1;
    spec.id = next++;
    slots[slot].spec = &spec;
    slots[slot].phase = SlotPhase::kSeating;
    keeper.make_way(stepper, slots, {.slot = &slots[slot], .takes_over = true}, spec);
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
  store.part_time = std::chrono::milliseconds(2);
  seats.end(0, prompt_of(100));
  RequestSpec spec = spec_of(prompt_of(50, 5000));
  seats.submit(0, spec);
  CHECK(seats.turn(0));
  CHECK(store.n_copied <= 2);  // of parts of one cell: slow ones do not grow
  CHECK(seats.keeper.has_work());
  CHECK_EQ(seats.counters.n_cache_states.get(), 1U);
  CHECK_EQ(seats.counters.n_cache_bytes.get(), 400U);
  seats.finish_work();
  CHECK_EQ(store.n_copied, 100);
  CHECK(store.parked.empty());
  CHECK(seats.counters.cache_turn_us_max.get() >= 2000);
  CHECK(seats.counters.cache_us.get() >= 200'000);
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
  store.part_time = std::chrono::milliseconds(4);
  seats.end(0, prompt_of(300));
  RequestSpec other = spec_of(prompt_of(300, 5000));
  seats.submit(0, other);
  for (std::int32_t i = 0; !seats.turn(0); ++i) REQUIRE(i < 1000);
  CHECK(store.parked.empty());
  CHECK_EQ(store.n_copied, 300);
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

}  // namespace

CHECK_MAIN()
