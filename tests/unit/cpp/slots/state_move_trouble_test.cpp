// Slot actions that take turns, and what comes between the turns: damage, failures, a stop, a lack
// of cells, what other slots do.
#include <cstring>
#include <thread>

#include "action_engine.h"
#include "check.h"
#include "same_bytes.h"

namespace state_move_trouble_test {
namespace {

using unpaced::EngineState;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::SlotMove;
using unpaced::SlotState;
using unpaced::Stepper;
using unpaced::TokenId;
using unpaced::test::ActionEngine;
using unpaced::test::in_order;
using unpaced::test::same_bytes;

constexpr std::int32_t kCells = 900;  // more than a part has at most

// What read_slot_file() would give if the memory of the 700th cell were damaged after it.
SlotState damaged(const SlotState& state) {
  SlotState read = ActionEngine::read(state);
  const std::int32_t n_sequences = 2;
  constexpr std::size_t kRecords = 16;
  std::memcpy(read.data.get() + kRecords + std::size_t{700} * 12 + 4, &n_sequences,
              sizeof n_sequences);
  return read;
}

TEST(a_state_that_is_damaged_part_way_leaves_nothing_of_it) {
  ActionEngine engine(2, 1280);
  engine.run(engine.model.prompt(kCells, 100), 1, 0);
  const SlotState state = engine.copy(0);
  SlotAction action{.kind = SlotActionKind::kRestore, .slot = 0, .state = damaged(state)};
  const RequestId stream = engine.begin_beside(engine.model.prompt(40), 150, action);
  engine.wait_for(action);
  CHECK(engine.script.n_steps_beside.load() > 0);
  CHECK_EQ(engine.script.n_whole.load(), 0);
  CHECK(!action.succeeded);
  CHECK_EQ(action.n_tokens, 0);
  CHECK_EQ(engine.n_cells(0), 0);
  CHECK(engine.restore(0, state));  // which has no room beside what would be left
  CHECK(in_order(engine.copy(0)) == in_order(state));
  REQUIRE(engine.model.front.run_until_finished(stream));
  CHECK_EQ(engine.tokens(stream).size(), 150U);
}

// As after an error of llama.cpp's, where all cells are cleared.
TEST(cells_that_are_cleared_between_the_parts) {
  ActionEngine engine(2, 2048);
  engine.run(engine.model.prompt(kCells, 100), 1, 0);
  const SlotState state = engine.copy(0);
  int n_cleared = 0;
  engine.script.beside = [&n_cleared](Stepper& stepper, Slot& slot) {
    if (slot.n_cells() > 4 && n_cleared++ == 0) stepper.forget(slot);
  };
  SlotAction action{.slot = 0};
  const std::vector<TokenId> prompt = engine.model.prompt(40);
  RequestId stream = engine.begin_beside(prompt, 50, action);
  engine.wait_for(action);
  CHECK_EQ(n_cleared, 1);
  CHECK(!action.succeeded);
  CHECK_EQ(engine.n_cells(0), 0);
  REQUIRE(engine.model.front.run_until_finished(stream));
  CHECK(engine.model.front.reason(stream) == FinishReason::kTokenLimit);
  n_cleared = 0;
  action = {.kind = SlotActionKind::kRestore, .slot = 0, .state = ActionEngine::read(state)};
  stream = engine.begin_beside(prompt, 50, action);
  engine.wait_for(action);
  CHECK(n_cleared > 1);
  CHECK(action.succeeded);  // from its beginning again
  CHECK(in_order(engine.copy_whole(0)) == in_order(state));
  REQUIRE(engine.model.front.run_until_finished(stream));
  CHECK(engine.model.front.reason(stream) == FinishReason::kTokenLimit);
}

TEST(an_exception_between_the_parts_ends_what_runs_and_the_action) {
  ActionEngine engine(2, 2048);
  engine.run(engine.model.prompt(kCells, 100), 1, 0);
  const SlotState state = engine.copy(0);
  for (const int n_fail : {1, 2}) {
    engine.script.beside = [&, n_fail](Stepper&, Slot& slot) {
      if (slot.n_cells() > 4) engine.script.n_forgets_fail = n_fail;
    };
    SlotAction action{.kind = SlotActionKind::kRestore, .slot = 0, .state = damaged(state)};
    const RequestId stream = engine.begin_beside(engine.model.prompt(40), 2000, action);
    engine.wait_for(action);
    CHECK(!action.succeeded);
    REQUIRE(engine.model.front.run_until_finished(stream));
    CHECK(engine.model.front.reason(stream) == FinishReason::kException);
    engine.script.n_forgets_fail = 0;
    if (n_fail > 1) break;
    CHECK_EQ(engine.n_cells(0), 0);
    engine.script.beside = nullptr;
    CHECK(engine.restore(0, state));
    CHECK(in_order(engine.copy_whole(0)) == in_order(state));
  }
  // What cannot even be forgotten ends the engine.
  CHECK(engine.model.front.thread().state() == EngineState::kFailed);
}

// Its cells move, the other slot's do not.
TEST(a_neighbour_shifts_its_context_between_the_parts) {
  for (const bool restores : {false, true}) {
    ActionEngine engine(2, 2560);
    engine.run(engine.model.prompt(kCells, 100), 1, 0);
    const SlotState state = engine.copy_whole(0);
    const std::int32_t n_slot = engine.model.front.thread().n_ctx();
    REQUIRE(n_slot < 1200);
    bool has_shifted = false;
    std::int32_t n_before = 0;
    engine.script.beside = [&](Stepper&, Slot& slot) {
      const Slot& neighbour = *(&slot + 1);
      has_shifted |= neighbour.n_cells() < n_before;
      n_before = neighbour.n_cells();
    };
    // A part a turn, and ten of them; two steps for the prompt and four more until it is full.
    SlotAction action{.slot = 0};
    if (restores) {
      action.kind = SlotActionKind::kRestore;
      action.state = ActionEngine::read(state);
    }
    const RequestId stream = engine.begin_beside(engine.model.prompt(n_slot - 5, 7), 40, action);
    engine.wait_for(action);
    CHECK(action.succeeded);
    if (!restores) CHECK(in_order(action.state) == in_order(state));
    CHECK(has_shifted);
    engine.script.beside = nullptr;
    CHECK(in_order(engine.copy_whole(0)) == in_order(state));
    REQUIRE(engine.model.front.run_until_finished(stream));
    CHECK_EQ(engine.tokens(stream).size(), 40U);
  }
}

TEST(requests_leave_between_the_parts) {
  ActionEngine engine(2, 2048);
  engine.run(engine.model.prompt(kCells, 100), 1, 0);
  const SlotState state = engine.copy(0);
  for (const bool restores : {false, true}) {
    std::atomic<bool> is_there{false};
    std::atomic<bool> goes_on{false};
    engine.script.beside = [&](Stepper&, Slot& slot) {
      if (slot.move == SlotMove::kIn && slot.n_cells() == 0) return;
      is_there = true;
      while (!goes_on) std::this_thread::yield();
    };
    SlotAction action{.slot = 0};
    if (restores) {
      action.kind = SlotActionKind::kRestore;
      action.state = ActionEngine::read(state);
    }
    const RequestId stream = engine.begin_beside(engine.model.prompt(40), 2000, action);
    const RequestId waiting = engine.submit(engine.model.prompt(10), 5, 0);
    while (!is_there) std::this_thread::yield();
    REQUIRE(engine.model.front.thread().cancel(waiting));
    REQUIRE(engine.model.front.thread().cancel(stream));
    goes_on = true;
    engine.wait_for(action);
    REQUIRE(engine.model.front.run_until_all_finished());
    CHECK(engine.model.front.reason(stream) == FinishReason::kCancelled);
    CHECK(engine.model.front.reason(waiting) == FinishReason::kCancelled);
    CHECK(action.succeeded);
    CHECK_EQ(action.n_tokens, kCells);
    CHECK(in_order(engine.copy_whole(0)) == in_order(state));
  }
}

// Idle slots give way, one whose state is on its way does not: who needs its cells waits.
TEST(where_cells_are_short_a_request_waits_for_the_last_part) {
  ActionEngine engine(2, 512);
  engine.run(engine.model.prompt(300), 1, 0);
  const SlotState before = engine.copy_whole(0);
  SlotAction copy{.slot = 0};
  REQUIRE(engine.model.front.submit(copy));
  const RequestId other = engine.submit(engine.model.prompt(300, 1000), 2, 1);
  REQUIRE(engine.model.front.run_until_finished(other));
  CHECK(engine.model.front.reason(other) == FinishReason::kTokenLimit);
  CHECK(engine.model.front.finished(copy.id));
  CHECK(same_bytes(copy.state.bytes(), before.bytes()));
  CHECK_EQ(engine.n_cells(0), 0);
}

TEST(what_finds_no_room_leaves_the_slot_empty_and_the_others_alone) {
  ActionEngine engine(2, 512);
  engine.run(engine.model.prompt(300), 1, 0);
  const SlotState state = engine.copy(0);
  engine.erase(0);
  const RequestId stream = engine.submit(engine.model.prompt(300, 1000), 150, 1);
  REQUIRE(engine.model.front.run_until([&] { return !engine.tokens(stream).empty(); }));
  CHECK(!engine.restore(0, state));
  CHECK_EQ(engine.n_cells(0), 0);
  CHECK(!engine.model.front.finished(stream));
  REQUIRE(engine.model.front.run_until_finished(stream));
  CHECK_EQ(engine.tokens(stream).size(), 150U);
  CHECK(engine.restore(0, state) == false);  // the idle slot has them still
  engine.erase(1);
  CHECK(engine.restore(0, state));
}

TEST(stopped_in_the_middle_of_an_action) {
  for (const bool restores : {false, true}) {
    ActionEngine engine(2, 2048);
    engine.run(engine.model.prompt(kCells), 1, 0);
    SlotAction action{.slot = 0};
    if (restores) {
      const SlotState state = engine.copy(0);
      action.kind = SlotActionKind::kRestore;
      action.state = ActionEngine::read(state);
    }
    std::atomic<bool> is_there{false};
    engine.script.beside = [&](Stepper&, Slot&) {
      is_there = true;
      while (!engine.model.front.thread().stop_flag()) std::this_thread::yield();
    };
    const RequestId stream = engine.begin_beside(engine.model.prompt(10, 1000), 500, action);
    while (!is_there) std::this_thread::yield();
    engine.model.front.thread().stop();
    engine.model.front.drain();
    CHECK(engine.model.front.finished(action.id));
    CHECK(engine.model.front.reason(action.id) == FinishReason::kStopped);
    CHECK(!action.succeeded);
    CHECK(engine.model.front.reason(stream) == FinishReason::kStopped);
  }
}

}  // namespace
}  // namespace state_move_trouble_test
