// Slots of a real model: states copied, restored and filed, context shift, cells that all share.
#include <ggml.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "check.h"
#include "model_engine.h"
#include "slots/kv_cells.h"
#include "slots/slot_file.h"

namespace slot_state_test {
namespace {

using unpaced::EngineConfig;
using unpaced::FinishReason;
using unpaced::RequestId;
using unpaced::RequestSpec;
using unpaced::SlotAction;
using unpaced::SlotActionKind;
using unpaced::SlotFileError;
using unpaced::SlotFileLimits;
using unpaced::SlotNameError;
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
  } catch (const SlotNameError&) {
    is_written = false;
  }
  CHECK(!is_written);
  ::unlink(path.c_str());
  ::rmdir(folder);
}

// A file in a folder of its own, and what can become of it.
class FiledState {
 public:
  FiledState(SlotState& state, std::int32_t n_vocab)
      : limits_{.model = 7, .n_vocab = n_vocab, .n_ctx = 1024} {
    REQUIRE(::mkdtemp(folder_) != nullptr);
    write_slot_file(folder_, "state", state, 7);
    std::ifstream file(path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  ~FiledState() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] bool is_refused(std::string_view content) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << content;
    std::size_t n_bytes = 0;
    try {
      static_cast<void>(read_slot_file(folder_, "state", limits_, n_bytes));
    } catch (const SlotFileError&) {
      return true;
    }
    return false;
  }

  std::string bytes;

 private:
  [[nodiscard]] std::string path() const { return std::string(folder_) + "/state"; }

  char folder_[32] = "/tmp/unpaced-slots-XXXXXX";
  SlotFileLimits limits_;
};

// As llama-server has it: no trailer, and the slot's number where the mark was.
std::string foreign(const FiledState& file, std::size_t n_tokens, const unpaced::KvCells& cells) {
  std::string bytes = file.bytes.substr(0, file.bytes.size() - 40);
  bytes.replace(28 + 4 * n_tokens + cells.sequence_id(), 4, 4, '\0');
  return bytes;
}

TEST(damage_is_found_without_the_trailer_too) {
  for (const std::int32_t flash_attn : {0, 1}) {  // without it values are stored transposed
    EngineConfig config = config_of(2, 1024);
    config.flash_attn = flash_attn;
    ModelEngine engine(config);
    run(engine, engine.prompt(50), 1, 1);
    SlotState state = copy(engine, 1);
    const std::size_t n_tokens = state.tokens.size();
    const auto cells = unpaced::find_kv_cells(state.bytes().subspan(8), 0, n_tokens);
    REQUIRE(cells.has_value());
    CHECK_EQ(cells->n, n_tokens);
    const FiledState file(state, engine.n_vocab);
    CHECK(!file.is_refused(file.bytes));
    // Ours, shorter: the mark asks for the trailer.
    for (const std::size_t n : {1U, 39U, 40U, 41U, 80U, 4096U}) {
      CHECK(file.is_refused(file.bytes.substr(0, file.bytes.size() - n)));
    }
    std::string no_magic = file.bytes;
    no_magic[no_magic.size() - 40] = 'u';
    CHECK(file.is_refused(no_magic));

    const std::string whole = foreign(file, n_tokens, *cells);
    CHECK(!file.is_refused(whole));
    // Every byte of a cell's position and count: one of -1 would end the process in llama.cpp.
    const std::size_t at = 28 + 4 * n_tokens + cells->begin;
    for (std::size_t i = 0; i < cells->n * cells->n_bytes; ++i) {
      if (i % cells->n_bytes >= 8) continue;
      std::string damaged = whole;
      damaged[at + i] = static_cast<char>(damaged[at + i] ^ 0xff);
      CHECK(file.is_refused(damaged));
    }
    // Values that are none, in F16, in the first key and the last value.
    const std::size_t first = at + cells->n * cells->n_bytes + 8 + 12;
    for (const std::size_t value : {first, whole.size() - 2}) {
      for (const float none : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        std::string damaged = whole;
        const ggml_fp16_t half = ggml_fp32_to_fp16(none);
        std::memcpy(&damaged[value], &half, sizeof half);
        CHECK(file.is_refused(damaged));
      }
    }
  }
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

TEST(who_finds_no_cell_waits_for_the_other_one_to_end) {
  EngineConfig config = config_of(2, 256);
  config.kv_unified = true;
  ModelEngine engine(config);
  const RequestId first = engine.front.submit(engine.greedy(engine.prompt(60), 120));
  const RequestId second = engine.front.submit(engine.greedy(engine.prompt(60, 300), 120));
  REQUIRE(engine.front.run_until_all_finished());
  for (const RequestId id : {first, second}) {
    CHECK(engine.front.reason(id) == FinishReason::kTokenLimit);
    CHECK_EQ(engine.front.tokens(id).size(), 120U);
  }
  CHECK(engine.front.thread().counters().n_cells_yielded.get() > 0);
}

}  // namespace
}  // namespace slot_state_test
