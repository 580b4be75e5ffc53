// What a step of two batches tells of the first one before it computes the second.
#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"
#include "model_engine.h"

namespace batches_apart_test {
namespace {

using unpaced::DecodeThread;
using unpaced::EngineConfig;
using unpaced::EventPublisher;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::Stepper;
using unpaced::test::ModelEngine;

struct Seen {
  DecodeThread* thread = nullptr;
  std::atomic<int> n_beside{0};  // steps with both batches
  std::atomic<int> n_told{0};    // of them, those that woke the reader before they were over
};

// The model's stepper, before each of whose steps the reader has gone to sleep.
class WatchedStepper final : public Stepper {
 public:
  WatchedStepper(std::unique_ptr<Stepper> stepper, Seen& seen)
      : stepper_(std::move(stepper)), seen_(seen) {}
  std::int32_t n_ctx() const noexcept override { return stepper_->n_ctx(); }
  std::int32_t begin(Slot& slot) override { return stepper_->begin(slot); }
  void forget(Slot& slot) override { stepper_->forget(slot); }
  void step(std::span<Slot> slots, EventPublisher& events) override {
    const std::uint64_t n_before = n_beside();
    seen_.thread->reader_wakeup().prepare_park();
    const std::uint64_t n_writes = seen_.thread->reader_wakeup().n_writes();
    stepper_->step(slots, events);
    if (n_beside() == n_before) return;
    seen_.n_told += seen_.thread->reader_wakeup().n_writes() > n_writes ? 1 : 0;
    seen_.n_beside += 1;
  }

 private:
  [[nodiscard]] std::uint64_t n_beside() const {
    return seen_.thread->counters().n_steps_beside.get();
  }

  const std::unique_ptr<Stepper> stepper_;
  Seen& seen_;
};

TEST(tokens_of_a_text_are_told_before_a_prompts_part_is_computed) {
  EngineConfig config;
  config.n_slots = 2;
  config.n_ctx = 4096;
  config.kv_unified = true;
  config.prefill_budget = 64;
  Seen seen;
  ModelEngine engine(config, 4096, [&](std::unique_ptr<Stepper> stepper) {
    return std::make_unique<WatchedStepper>(std::move(stepper), seen);
  });
  seen.thread = &engine.front.thread();
  const RequestId text = engine.front.submit(engine.greedy(engine.prompt(8), 400));
  REQUIRE(engine.front.run_until([&] { return engine.front.tokens(text).size() >= 3; }));
  engine.front.submit(engine.greedy(engine.prompt(600, 50), 4));
  // Nobody but the stepper parks meanwhile.
  while (seen.n_beside < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_EQ(seen.n_told.load(), seen.n_beside.load());
  CHECK(engine.front.run_until_all_finished());
}

}  // namespace
}  // namespace batches_apart_test
