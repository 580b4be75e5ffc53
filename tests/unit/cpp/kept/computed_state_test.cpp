// A kept prompt of a real model that comes back by copy, or is computed, or in part: the answer is
// the same.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "check.h"
#include "model_engine.h"
#include "tied_tokens.h"

namespace computed_state_test {
namespace {

using unpaced::CellStore;
using unpaced::Counters;
using unpaced::EngineConfig;
using unpaced::EventPublisher;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::SlotKeeperOptions;
using unpaced::SlotState;
using unpaced::Stepper;
using unpaced::TokenId;
using unpaced::test::equal_up_to_a_tie;
using unpaced::test::ModelEngine;

// The model's stepper, which says of its costs what it is told to say.
class ToldStepper final : public Stepper {
 public:
  ToldStepper(std::unique_ptr<Stepper> stepper, const std::atomic<double>& token_us,
              const std::atomic<bool>& is_whole)
      : stepper_(std::move(stepper)), token_us_(token_us), is_whole_(is_whole) {}
  std::int32_t n_ctx() const noexcept override { return stepper_->n_ctx(); }
  std::int32_t begin(Slot& slot) override { return stepper_->begin(slot); }
  void step(std::span<Slot> slots, EventPublisher& events) override {
    stepper_->step(slots, events);
  }
  double prompt_us(std::int32_t n, std::int32_t n_rest, std::int32_t) const noexcept override {
    return token_us_ * (n - n_rest);
  }
  void forget(Slot& slot) override { stepper_->forget(slot); }
  CellStore* cell_store() noexcept override { return is_whole_ ? nullptr : stepper_->cell_store(); }
  std::size_t state_bytes(const Slot& slot) override { return stepper_->state_bytes(slot); }
  bool copy_state(const Slot& slot, std::span<std::byte> to) override {
    return stepper_->copy_state(slot, to);
  }
  bool restore_state(Slot& slot, const SlotState& state) override {
    return stepper_->restore_state(slot, state);
  }

 private:
  const std::unique_ptr<Stepper> stepper_;
  const std::atomic<double>& token_us_;
  const std::atomic<bool>& is_whole_;
};

constexpr double kQuick = 1e-6;  // computing, or
constexpr double kSlow = 1e6;

struct ToldEngine {
  explicit ToldEngine(EngineConfig config)
      : model(
            std::move(config), 4096,
            [this](std::unique_ptr<Stepper> stepper) {
              return std::make_unique<ToldStepper>(std::move(stepper), token_us, is_whole);
            },
            SlotKeeperOptions{}.turn_us, false) {}

  RequestId run(const std::vector<TokenId>& prompt, std::int32_t n) {
    auto spec = model.greedy(prompt, n);
    spec->n_probs = 10;
    const RequestId id = model.front.submit(std::move(spec));
    REQUIRE(model.front.run_until_finished(id));
    // Until it sleeps: all copies are made.
    while (model.front.thread().heartbeat_age_us() != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return id;
  }
  std::int32_t n_cached(RequestId id) { return model.front.events(id).front().prompt.n_cached; }
  const Counters& counters() { return model.front.thread().counters(); }

  std::atomic<double> token_us{kSlow};
  std::atomic<bool> is_whole{false};
  ModelEngine model;
};

EngineConfig config_of(std::int32_t n_slots) {
  EngineConfig config;
  config.n_slots = n_slots;
  config.n_ctx = 4096;
  config.kv_unified = n_slots > 1;
  config.cache_bytes_max = -1;
  // Flash attention's sums depend on where the cells lie, and they move.
  config.flash_attn = 0;
  return config;
}

// A whole state is one part, and nothing is believed before some have been seen.
constexpr int kLearned = 4;

TEST(an_answer_is_the_same_whichever_way_its_prompt_comes_back) {
  for (const std::int32_t n_slots : {1, 3}) {
    for (const bool is_whole : {false, true}) {
      if (is_whole && n_slots > 1) continue;  // a state goes as a whole where it has all cells
      ToldEngine engine(config_of(n_slots));
      engine.is_whole = is_whole;
      const std::vector<TokenId> prompt = engine.model.prompt(700);
      const std::vector<TokenId> other = engine.model.prompt(300, 1500);
      const RequestId cold = engine.run(prompt, 24);
      engine.run(other, 2);
      RequestId copied = 0;
      for (int i = 0; i < kLearned; ++i) {
        copied = engine.run(prompt, 24);
        CHECK_EQ(engine.n_cached(copied), 699);
        engine.run(other, 2);
      }
      CHECK(engine.counters().n_cache_copied.get() >= kLearned);
      engine.token_us = kQuick;
      const auto n_states = engine.counters().n_cache_states.get();
      const RequestId computed = engine.run(prompt, 24);
      CHECK(engine.n_cached(computed) <= 1);  // of what the slot held
      CHECK_EQ(engine.counters().n_cache_computed.get(), 1U);
      CHECK(engine.counters().n_cache_states.get() >= n_states);
      CHECK(equal_up_to_a_tie(engine.model.front.events(cold), engine.model.front.events(copied)));
      CHECK(
          equal_up_to_a_tie(engine.model.front.events(cold), engine.model.front.events(computed)));
      engine.token_us = kSlow;
      engine.run(other, 2);
      CHECK_EQ(engine.n_cached(engine.run(prompt, 24)), 699);  // the state has stayed
    }
  }
}

// The first parts have come when it turns out that computing is quicker.
TEST(an_answer_is_the_same_where_a_part_is_copied_and_the_rest_computed) {
  ToldEngine engine(config_of(1));
  const std::vector<TokenId> prompt = engine.model.prompt(700);
  const RequestId cold = engine.run(prompt, 24);
  engine.run(engine.model.prompt(300, 1500), 2);
  engine.token_us = kQuick;
  const RequestId half = engine.run(prompt, 24);
  CHECK(engine.n_cached(half) > 0);
  CHECK(engine.n_cached(half) < 699);
  CHECK(equal_up_to_a_tie(engine.model.front.events(cold), engine.model.front.events(half)));
  CHECK_EQ(engine.counters().n_cache_copied.get(), 0U);
}

}  // namespace
}  // namespace computed_state_test
