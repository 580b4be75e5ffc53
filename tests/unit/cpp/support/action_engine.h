// An engine whose slot actions take a turn for each part, and what a test does with it.
#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "model_engine.h"
#include "slots/state_pieces.h"

namespace unpaced::test {

// The model's stepper; it has a CellStore only where `is_whole` is not set.
class ChoosyStepper final : public Stepper {
 public:
  // Before a step beside a slot action that takes turns.
  using Beside = std::function<void(Stepper&, Slot&)>;

  struct Script {
    std::atomic<bool> is_whole{false};
    // Set while no slot action is under way.
    Beside beside;
    std::atomic<bool> is_held{false};    // no step begins
    std::atomic<int> n_forgets_fail{0};  // so many calls of forget() throw
    std::atomic<int> n_whole{0};         // states that were copied at once
    std::atomic<int> n_steps_beside{0};
  };

  ChoosyStepper(std::unique_ptr<Stepper> stepper, Script& script)
      : stepper_(std::move(stepper)), script_(script) {}
  std::int32_t n_ctx() const noexcept override { return stepper_->n_ctx(); }
  std::int32_t begin(Slot& slot) override { return stepper_->begin(slot); }
  void step(std::span<Slot> slots, EventPublisher& events) override {
    while (script_.is_held) std::this_thread::yield();
    for (Slot& slot : slots) {
      if (slot.move == SlotMove::kNone) continue;
      ++script_.n_steps_beside;
      if (script_.beside) script_.beside(*stepper_, slot);
    }
    stepper_->step(slots, events);
  }
  void forget(Slot& slot) override {
    if (script_.n_forgets_fail > 0) {
      --script_.n_forgets_fail;
      throw std::runtime_error("forget");
    }
    stepper_->forget(slot);
  }
  CellStore* cell_store() noexcept override {
    return script_.is_whole ? nullptr : stepper_->cell_store();
  }
  std::size_t state_bytes(const Slot& slot) override { return stepper_->state_bytes(slot); }
  bool copy_state(const Slot& slot, std::span<std::byte> to) override {
    ++script_.n_whole;
    return stepper_->copy_state(slot, to);
  }
  bool restore_state(Slot& slot, const SlotState& state) override {
    ++script_.n_whole;
    return stepper_->restore_state(slot, state);
  }

 private:
  const std::unique_ptr<Stepper> stepper_;
  Script& script_;
};

class ActionEngine {
 public:
  ActionEngine(std::int32_t n_slots, std::int32_t n_ctx, std::int32_t flash_attn = 0)
      : model(
            config_of(n_slots, n_ctx, flash_attn), 4096,
            [this](std::unique_ptr<Stepper> stepper) {
              return std::make_unique<ChoosyStepper>(std::move(stepper), script);
            },
            0) {}

  // Greedy.
  RequestId submit(const std::vector<TokenId>& prompt, std::int32_t n, std::int32_t slot) {
    auto spec = model.greedy(prompt, n);
    spec->id_slot = slot;
    return model.front.submit(std::move(spec));
  }
  RequestId run(const std::vector<TokenId>& prompt, std::int32_t n, std::int32_t slot) {
    const RequestId id = submit(prompt, n, slot);
    REQUIRE(model.front.run_until_finished(id));
    return id;
  }
  void wait_for(const SlotAction& action) {
    REQUIRE(model.front.run_until([&] { return model.front.finished(action.id); }));
  }
  void act(SlotAction& action) {
    REQUIRE(model.front.submit(action));
    wait_for(action);
  }
  // The action begins after the first step of a request in slot 1, which this returns.
  RequestId begin_beside(const std::vector<TokenId>& prompt, std::int32_t n, SlotAction& action) {
    script.is_held = true;
    const RequestId id = submit(prompt, n, 1);
    REQUIRE(model.front.submit(action));
    script.is_held = false;
    return id;
  }
  SlotState copy(std::int32_t slot) {
    SlotAction action{.slot = slot};
    act(action);
    CHECK(action.succeeded);
    CHECK_EQ(static_cast<std::size_t>(action.n_tokens), action.state.tokens.size());
    return std::move(action.state);
  }
  SlotState copy_whole(std::int32_t slot) {
    script.is_whole = true;
    SlotState state = copy(slot);
    script.is_whole = false;
    return state;
  }
  // As read_slot_file() gives it.
  bool restore(std::int32_t slot, const SlotState& state) {
    SlotAction action{.kind = SlotActionKind::kRestore, .slot = slot, .state = read(state)};
    act(action);
    return action.succeeded;
  }
  void erase(std::int32_t slot) {
    SlotAction action{.kind = SlotActionKind::kErase, .slot = slot};
    act(action);
  }
  static SlotState read(const SlotState& state) {
    SlotState copied;
    copied.tokens = state.tokens;
    copied.lora_scales = state.lora_scales;
    copied.allocate(state.n_bytes);
    std::memcpy(copied.data.get(), state.bytes().data(), state.n_bytes);
    copied.pieces = StatePieces::of(copied.bytes(), copied.tokens.size());
    return copied;
  }
  std::int32_t n_cached(RequestId id) { return model.front.events(id).front().prompt.n_cached; }
  [[nodiscard]] std::int32_t n_cells(std::int32_t slot) {
    return model.front.thread().n_cells(slot);
  }
  [[nodiscard]] std::vector<TokenId> tokens(RequestId id) { return model.front.tokens(id); }

  ChoosyStepper::Script script;
  ModelEngine model;

 private:
  static EngineConfig config_of(std::int32_t n_slots, std::int32_t n_ctx, std::int32_t flash_attn) {
    EngineConfig config;
    config.n_slots = n_slots;
    config.n_ctx = n_ctx;
    config.kv_unified = n_slots > 1;
    config.cache_bytes_max = -1;  // without a prompt cache there is no store
    config.cache_idle_slots = false;
    config.context_shift = true;
    config.flash_attn = flash_attn;
    return config;
  }
};

// The state's cells one after the other in the order of their positions, of no sequence in
// particular.
inline std::vector<std::byte> in_order(const SlotState& state) {
  const SlotState read = ActionEngine::read(state);
  REQUIRE(read.pieces.has_value());
  const auto n = static_cast<std::int32_t>(state.tokens.size());
  std::vector<std::byte> bytes(state.n_bytes);
  std::vector<std::byte> again(state.n_bytes);
  read.pieces->take(read.bytes(), state.tokens.size(), 0, n, {}, bytes);
  read.pieces->write_heads(again, state.tokens.size());
  CHECK(read.pieces->put(bytes, {}, 0, n, 0, again, state.tokens.size()));
  return again;
}

}  // namespace unpaced::test
