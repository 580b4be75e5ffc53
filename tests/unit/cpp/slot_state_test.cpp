// Slots of a real model: states copied, restored and filed, context shift, cells that all share.
#include <fstream>

#include "check.h"
#include "model_engine.h"
#include "slot_file.h"

namespace {

using unpaced::EngineConfig;
using unpaced::EventKind;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::SlotFileError;
using unpaced::SlotFileLimits;
using unpaced::SlotState;
using unpaced::TokenId;
using unpaced::test::ModelEngine;

EngineConfig config_of(std::int32_t n_slots, std::int32_t n_ctx) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = n_ctx;
  return config;
}

RequestId run(ModelEngine& engine, std::unique_ptr<RequestSpec> spec) {
  const RequestId id = engine.front.submit(std::move(spec));
  REQUIRE(engine.front.run_until_finished(id));
  return id;
}

RequestId run(ModelEngine& engine, const std::vector<TokenId>& prompt, std::int32_t n,
              std::int32_t slot = -1) {
  auto spec = engine.greedy(prompt, n);
  spec->id_slot = slot;
  return run(engine, std::move(spec));
}

std::int32_t n_cached(ModelEngine& engine, RequestId id) {
  return engine.front.events(id).front().prompt.n_cached;
}

SlotState copy(ModelEngine& engine, std::int32_t slot) {
  SlotAction action{.slot = slot};
  REQUIRE(engine.front.submit(action));
  REQUIRE(engine.front.run_until([&] { return engine.front.finished(action.id); }));
  CHECK(action.succeeded);
  return std::move(action.state);
}

bool restore(ModelEngine& engine, std::int32_t slot, SlotState state) {
  SlotAction action{.kind = SlotActionKind::kRestore, .slot = slot};
  action.state = std::move(state);
  REQUIRE(engine.front.submit(action));
  REQUIRE(engine.front.run_until([&] { return engine.front.finished(action.id); }));
  return action.succeeded;
}

// In another slot, after a detour through a file, the text goes on as it would have.
TEST(a_restored_state_goes_on_as_the_old_one) {
  for (const bool unified : {false, true}) {
    EngineConfig config = config_of(2, 1024);
    config.kv_unified = unified;
    ModelEngine engine(config);
    const std::vector<TokenId> prompt = engine.prompt(100);
    const RequestId first = run(engine, prompt, 20, 0);
    SlotState state = copy(engine, 0);
    CHECK_EQ(state.tokens.size(), 119U);
    char folder[] = "/tmp/unpaced-slots-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::size_t n_written = write_slot_file(folder, "a state", state, 7);
    std::size_t n_read = 0;
    const SlotFileLimits limits{.model = 7, .n_vocab = engine.n_vocab, .n_ctx = 512};
    SlotState again = read_slot_file(folder, "a state", limits, n_read);
    CHECK_EQ(n_read, n_written);
    CHECK(again.tokens == state.tokens);
    CHECK(restore(engine, 1, std::move(again)));
    CHECK_EQ(engine.front.thread().n_cells(1), 119);
    const RequestId second = run(engine, prompt, 20, 1);
    CHECK_EQ(n_cached(engine, second), 99);
    CHECK(engine.front.tokens(second) == engine.front.tokens(first));
    ::unlink((std::string(folder) + "/a state").c_str());
    ::rmdir(folder);
  }
}

TEST(a_file_that_is_not_the_slots_is_refused) {
  char folder[] = "/tmp/unpaced-slots-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/state";
  SlotState state;
  state.tokens = {5, 6, 7};
  state.allocate(1000);
  std::fill_n(state.data.get(), 1000, std::byte{3});
  const SlotFileLimits limits{.model = 7, .n_vocab = 100, .n_ctx = 512};
  const auto is_refused = [&](const SlotFileLimits& fit) {
    std::size_t n_bytes = 0;
    try {
      static_cast<void>(read_slot_file(folder, "state", fit, n_bytes));
    } catch (const SlotFileError&) {
      return true;
    }
    return false;
  };
  const auto damage = [&](std::size_t at) {
    write_slot_file(folder, "state", state, 7);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x7f');
  };
  write_slot_file(folder, "state", state, 7);
  CHECK(!is_refused(limits));
  CHECK(is_refused({.model = 8, .n_vocab = 100, .n_ctx = 512}));
  CHECK(is_refused({.model = 7, .n_vocab = 7, .n_ctx = 512}));
  CHECK(is_refused({.model = 7, .n_vocab = 100, .n_ctx = 2}));
  for (const std::size_t at : {0U, 4U, 9U, 16U, 20U, 24U, 36U, 500U, 1041U, 1060U}) {
    damage(at);
    CHECK(is_refused(limits));
  }
  for (const ::off_t size : {0, 11, 20}) {
    write_slot_file(folder, "state", state, 7);
    REQUIRE(::truncate(path.c_str(), size) == 0);
    CHECK(is_refused(limits));
  }
  ::unlink(path.c_str());
  CHECK(is_refused(limits));  // there is none
  REQUIRE(::symlink("/etc/hostname", path.c_str()) == 0);
  CHECK(is_refused(limits));
  bool is_written = true;
  try {
    write_slot_file(folder, "state", state, 7);
  } catch (const SlotFileError&) {
    is_written = false;
  }
  CHECK(!is_written);
  ::unlink(path.c_str());
  ::rmdir(folder);
}

TEST(garbage_in_the_place_of_a_state_leaves_the_slot_empty_and_the_others_alone) {
  ModelEngine engine(config_of(2, 1024));
  const std::vector<TokenId> prompt = engine.prompt(100);
  const RequestId first = run(engine, prompt, 20, 0);
  SlotState state = copy(engine, 0);
  for (const std::size_t keep : {9UL, 13UL, 100UL, state.n_bytes / 2, state.n_bytes - 1}) {
    SlotState part;
    part.tokens = state.tokens;
    part.allocate(keep);
    std::copy_n(state.data.get(), keep, part.data.get());
    CHECK(!restore(engine, 1, std::move(part)));
    CHECK_EQ(engine.front.thread().n_cells(1), 0);
  }
  state.tokens.pop_back();
  CHECK(!restore(engine, 1, std::move(state)));
  const RequestId again = run(engine, prompt, 20, 0);
  CHECK_EQ(n_cached(engine, again), 99);
  CHECK(engine.front.tokens(again) == engine.front.tokens(first));
}

TEST(a_full_context_shifts_and_goes_on) {
  EngineConfig config = config_of(1, 256);
  config.context_shift = true;
  ModelEngine engine(config);
  auto spec = engine.greedy(engine.prompt(200), 300);
  spec->n_keep = 20;
  const RequestId id = run(engine, std::move(spec));
  CHECK_EQ(engine.front.tokens(id).size(), 300U);
  CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
  const auto& end = engine.front.events(id).back().finished;
  CHECK(end.n_shifts >= 2);
  CHECK(end.n_cells < 256);
  ModelEngine plain(config_of(1, 256));
  const RequestId cut = run(plain, plain.prompt(200), 300);
  CHECK(plain.front.reason(cut) == FinishReason::kContextLimit);
  const auto tokens = engine.front.tokens(id);
  const auto before = plain.front.tokens(cut);
  CHECK_EQ(before.size(), 56U);
  CHECK(std::equal(before.begin(), before.end(), tokens.begin()));  // the same until it is full
}

// The tokens that stay keep their meaning: a chunk that moved gives nearly the same continuation
// as one computed at its new place, and the counts are exact.
TEST(moved_chunks_are_reused_where_asked_for) {
  ModelEngine engine(config_of(1, 1024));
  const std::vector<TokenId> prompt = engine.prompt(300);
  run(engine, prompt, 1);
  std::vector<TokenId> shorter(prompt.begin(), prompt.begin() + 100);
  shorter.insert(shorter.end(), prompt.begin() + 150, prompt.end());
  auto spec = engine.greedy(shorter, 5);
  spec->n_cache_reuse = 64;
  const RequestId reused = run(engine, std::move(spec));
  CHECK_EQ(n_cached(engine, reused), 249);
  CHECK_EQ(engine.front.tokens(reused).size(), 5U);
  const RequestId plain = run(engine, prompt, 1);
  CHECK_EQ(n_cached(engine, plain), 100);
}

TEST(slots_that_share_cells_take_them_from_idle_ones_first) {
  EngineConfig config = config_of(4, 512);
  config.kv_unified = true;
  ModelEngine engine(config);
  CHECK_EQ(engine.front.thread().n_ctx(), 512);
  run(engine, engine.prompt(200), 10, 0);
  run(engine, engine.prompt(200, 400), 10, 1);
  CHECK(engine.front.thread().n_cells(0) > 0);
  const RequestId id = run(engine, engine.prompt(300, 800), 10, 2);
  CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.thread().n_cells(0), 0);
}

TEST(who_finds_no_cell_ends_alone) {
  EngineConfig config = config_of(2, 256);
  config.kv_unified = true;
  ModelEngine engine(config);
  const RequestId first = engine.front.submit(engine.greedy(engine.prompt(60), 120));
  const RequestId second = engine.front.submit(engine.greedy(engine.prompt(60, 300), 120));
  REQUIRE(engine.front.run_until_all_finished());
  const bool first_failed = engine.front.reason(first) == FinishReason::kDecodeFailed;
  const RequestId failed = first_failed ? first : second;
  const RequestId other = first_failed ? second : first;
  CHECK(engine.front.reason(failed) == FinishReason::kDecodeFailed);
  CHECK_EQ(engine.front.events(failed).back().finished.status, 1);
  CHECK(engine.front.reason(other) == FinishReason::kTokenLimit);
  CHECK_EQ(engine.front.tokens(other).size(), 120U);
}

}  // namespace

CHECK_MAIN()
