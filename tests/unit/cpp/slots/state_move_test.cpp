// Slot actions that take turns: states of a real model's slots, copied out and restored part by
// part, while other slots decode.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "action_engine.h"
#include "check.h"
#include "same_bytes.h"
#include "slots/slot_file.h"
#include "slots/state_pieces.h"

namespace state_move_test {
namespace {

using unpaced::RequestId;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::SlotState;
using unpaced::StatePieces;
using unpaced::TokenId;
using unpaced::test::ActionEngine;
using unpaced::test::in_order;
using unpaced::test::same_bytes;

// Every byte, with V as rows and, without flash attention, as columns.
TEST(what_is_copied_in_parts_is_what_is_copied_at_once) {
  for (const std::int32_t n_slots : {1, 3}) {
    for (const std::int32_t flash_attn : {0, 1}) {
      ActionEngine engine(n_slots, 2048, flash_attn);
      for (const std::int32_t n : {2, 3, 700}) {
        engine.run(engine.model.prompt(n, n), 1, 0);
        const SlotState whole = engine.copy_whole(0);
        CHECK_EQ(engine.script.n_whole.exchange(0), 1);
        const SlotState parts = engine.copy(0);
        CHECK_EQ(engine.script.n_whole.load(), 0);
        CHECK(parts.tokens == whole.tokens);
        CHECK(same_bytes(parts.bytes(), whole.bytes()));
      }
    }
  }
}

TEST(what_is_restored_in_parts_is_what_was_copied) {
  for (const std::int32_t flash_attn : {0, 1}) {
    ActionEngine engine(3, 2048, flash_attn);
    const std::vector<TokenId> prompt = engine.model.prompt(600);
    engine.run(prompt, 20, 0);
    const SlotState state = engine.copy(0);
    const RequestId before = engine.run(prompt, 20, 0);
    engine.erase(0);
    CHECK(engine.restore(1, state));
    CHECK_EQ(engine.script.n_whole.load(), 0);
    CHECK_EQ(engine.n_cells(1), 619);
    CHECK(in_order(engine.copy_whole(1)) == in_order(state));
    const RequestId after = engine.run(prompt, 20, 1);
    CHECK_EQ(engine.n_cached(after), 599);
    // Flash attention's sums depend on where the cells lie.
    if (flash_attn == 0) CHECK(engine.tokens(after) == engine.tokens(before));
  }
}

// A prompt's end lies in lower cells than its beginning, and between those of another one.
TEST(cells_out_of_order_are_in_order_in_a_state_of_parts) {
  ActionEngine engine(2, 512, 1);
  engine.run(engine.model.prompt(150), 1, 0);
  const std::vector<TokenId> prompt = engine.model.prompt(200, 500);
  engine.run(prompt, 1, 1);
  engine.erase(0);
  std::vector<TokenId> longer = engine.model.prompt(290, 500);
  const RequestId beside = engine.submit(engine.model.prompt(10, 1000), 60, 0);
  engine.run(longer, 1, 1);
  REQUIRE(engine.model.front.run_until_finished(beside));
  const RequestId longest = engine.run(engine.model.prompt(420, 500), 1, 1);
  CHECK_EQ(engine.n_cached(longest), 290);
  const SlotState whole = engine.copy_whole(1);
  const SlotState parts = engine.copy(1);
  CHECK(!same_bytes(parts.bytes(), whole.bytes()));
  CHECK(in_order(parts) == in_order(whole));
  engine.erase(0);
  engine.erase(1);
  CHECK(engine.restore(0, whole));
  CHECK(in_order(engine.copy_whole(0)) == in_order(whole));
}

TEST(a_stream_goes_on_between_the_parts) {
  ActionEngine engine(3, 4096);
  engine.run(engine.model.prompt(900, 100), 1, 0);
  const std::vector<TokenId> prompt = engine.model.prompt(40);
  SlotAction copy{.slot = 0};
  const RequestId stream = engine.begin_beside(prompt, 600, copy);
  engine.wait_for(copy);
  CHECK(copy.succeeded);
  CHECK(engine.script.n_steps_beside.exchange(0) > 0);  // a part has 512 cells at most
  CHECK(engine.restore(0, copy.state));
  CHECK(engine.script.n_steps_beside.load() > 0);
  CHECK(!engine.model.front.finished(stream));
  REQUIRE(engine.model.front.run_until_finished(stream));
  CHECK_EQ(engine.tokens(stream).size(), 600U);
  CHECK_EQ(engine.script.n_whole.load(), 0);
}

// Requests and actions get the slot one after the other, others do not wait.
TEST(who_wants_the_slot_waits_for_the_last_part) {
  ActionEngine engine(3, 4096);
  const std::vector<TokenId> prompt = engine.model.prompt(900);
  engine.run(prompt, 1, 0);
  const SlotState before = engine.copy_whole(0);
  SlotAction copy{.slot = 0};
  SlotAction erase{.kind = SlotActionKind::kErase, .slot = 0};
  SlotAction restore{
      .kind = SlotActionKind::kRestore, .slot = 0, .state = ActionEngine::read(before)};
  engine.script.is_held = true;
  const RequestId other = engine.submit(engine.model.prompt(20, 1500), 2, 1);
  REQUIRE(engine.model.front.submit(copy));
  REQUIRE(engine.model.front.submit(erase));
  REQUIRE(engine.model.front.submit(restore));
  engine.script.is_held = false;
  REQUIRE(engine.model.front.run_until_finished(other));
  const RequestId same = engine.submit(prompt, 2, 0);
  REQUIRE(engine.model.front.run_until_finished(same));
  for (SlotAction* action : {&copy, &erase, &restore}) {
    engine.wait_for(*action);
    CHECK(action->succeeded);
    CHECK_EQ(action->n_tokens, 900);
  }
  const std::vector<RequestId> ended = engine.model.front.order_of(unpaced::EventKind::kFinished);
  CHECK(std::ranges::find(ended, other) < std::ranges::find(ended, restore.id));
  CHECK(same_bytes(copy.state.bytes(), before.bytes()));
  CHECK_EQ(engine.n_cached(same), 899);
}

// What the other slot held is parked, and the request waits for its copy: a part, not the action.
TEST(a_request_that_displaces_another_one_is_before_an_action) {
  ActionEngine engine(3, 4096);
  engine.run(engine.model.prompt(900), 1, 0);
  engine.run(engine.model.prompt(100, 1000), 1, 1);
  engine.run(engine.model.prompt(20, 2000), 1, 2);
  SlotAction copy{.slot = 0};
  engine.script.is_held = true;
  const RequestId stream = engine.submit(engine.model.prompt(20, 2000), 40, 2);
  const RequestId other = engine.submit(engine.model.prompt(100, 1300), 2, 1);
  REQUIRE(engine.model.front.submit(copy));
  engine.script.is_held = false;
  engine.wait_for(copy);
  REQUIRE(engine.model.front.run_until_finished(stream));
  const std::vector<RequestId> ended = engine.model.front.order_of(unpaced::EventKind::kFinished);
  CHECK(std::ranges::find(ended, other) < std::ranges::find(ended, copy.id));
}

// A request that waits in the queue begins when the slot is free, without anything that wakes the
// thread.
TEST(the_only_slot_is_free_after_the_last_part) {
  ActionEngine engine(1, 2048);
  const std::vector<TokenId> prompt = engine.model.prompt(900);
  engine.run(prompt, 1, 0);
  SlotAction copy{.slot = 0};
  REQUIRE(engine.model.front.submit(copy));
  const RequestId next = engine.submit(engine.model.prompt(900), 2, -1);
  REQUIRE(engine.model.front.run_until_finished(next));
  CHECK(engine.model.front.finished(copy.id));
  CHECK(copy.succeeded);
  CHECK_EQ(engine.n_cached(next), 899);
}

// As on the GPU: plain rows, a layer's keys and its values in turn.
TEST(rows_are_put_where_they_belong) {
  ActionEngine engine(2, 2048, 1);
  engine.run(engine.model.prompt(100), 1, 0);
  const SlotState state = ActionEngine::read(engine.copy_whole(0));
  REQUIRE(state.pieces.has_value());
  const std::size_t n_all = state.tokens.size();
  // The demo model's keys and values are of one size: a state of two cells and one of three differ
  // by a cell's record and its rows.
  const std::size_t n_cell = state.pieces->n_bytes(3) - state.pieces->n_bytes(2);
  std::vector<std::uint32_t> rows;
  for (std::size_t n_layers = 1; n_layers < 200 && rows.empty(); ++n_layers) {
    if ((n_cell - 12) % (2 * n_layers) != 0) continue;
    rows.assign(2 * n_layers, static_cast<std::uint32_t>((n_cell - 12) / (2 * n_layers)));
    if (!state.pieces->has_rows(rows)) rows.clear();
  }
  REQUIRE(!rows.empty());
  std::vector<std::byte> made(state.n_bytes);
  state.pieces->write_heads(made, n_all);
  std::int32_t sequence = 0;
  std::memcpy(&sequence, state.data.get() + 4, sizeof sequence);
  std::vector<std::byte> part;
  for (std::int32_t first = 0, n = 1; first < std::ssize(state.tokens); first += n, n = 2 * n + 1) {
    n = std::min(n, static_cast<std::int32_t>(std::ssize(state.tokens)) - first);
    part.assign((n_cell - 12) * static_cast<std::size_t>(n), std::byte{0});
    state.pieces->take(state.bytes(), n_all, first, n, rows, part);
    CHECK(state.pieces->put(part, rows, first, n, sequence, made, n_all));
  }
  CHECK(same_bytes(made, state.bytes()));
  rows.back() += 16;
  CHECK(!state.pieces->has_rows(rows));
  rows.pop_back();
  CHECK(!state.pieces->has_rows(rows));
}

TEST(a_damaged_state_has_no_pieces) {
  for (const std::int32_t flash_attn : {0, 1}) {
    ActionEngine engine(2, 1024, flash_attn);
    engine.run(engine.model.prompt(20), 1, 0);
    const SlotState state = engine.copy(0);
    const std::size_t n = state.tokens.size();
    CHECK(StatePieces::of(state.bytes(), n).has_value());
    CHECK(!StatePieces::of(state.bytes(), n - 1).has_value());
    CHECK(!StatePieces::of(state.bytes(), n + 1).has_value());
    for (std::size_t size = 0; size < state.n_bytes; size += size < 400 ? 1 : 997) {
      CHECK(!StatePieces::of(state.bytes().first(size), n).has_value());
    }
    // Whatever is there, it is read within its bounds; what has pieces has all its bytes in them.
    std::vector<std::byte> damaged(state.bytes().begin(), state.bytes().end());
    for (std::size_t at = 8; at < 600; ++at) {
      for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xff}}) {
        damaged[at] ^= flip;
        const auto pieces = StatePieces::of(damaged, n);
        CHECK(!pieces || pieces->n_bytes(n) == damaged.size());
        damaged[at] ^= flip;
      }
    }
  }
}

// What another server wrote has no checksum: it is restored at once, and llama.cpp looks at it.
TEST(files_of_ours_are_restored_in_parts) {
  char folder[] = "/tmp/unpaced-slots-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  ActionEngine engine(2, 1024);
  engine.run(engine.model.prompt(200), 1, 0);
  SlotState state = engine.copy(0);
  write_slot_file(folder, "ours", state, 7);
  const unpaced::SlotFileLimits limits{.model = 7, .n_vocab = engine.model.n_vocab, .n_ctx = 1024};
  std::size_t n_bytes = 0;
  SlotAction action{.kind = SlotActionKind::kRestore, .slot = 1};
  action.state = read_slot_file(folder, "ours", limits, n_bytes);
  engine.act(action);
  CHECK(action.succeeded);
  CHECK_EQ(engine.script.n_whole.load(), 0);
  SlotState again = engine.copy(1);
  write_slot_file(folder, "again", again, 7);
  // The sequence of each cell is the only difference, and nobody looks at it.
  CHECK_EQ(std::filesystem::file_size(std::string(folder) + "/ours"),
           std::filesystem::file_size(std::string(folder) + "/again"));
  CHECK(in_order(again) == in_order(state));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace state_move_test
