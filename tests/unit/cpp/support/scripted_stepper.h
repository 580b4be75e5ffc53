// A Stepper whose tokens follow from the request's id, with a gate before every step and hooks that
// may throw: the decode thread's loop can be stopped anywhere and looked at.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "decode/decode_thread.h"
#include "decode/stepper.h"
#include "slots/common_prefix.h"

namespace unpaced::test {

// Lets the decode thread make a counted number of steps.
class Gate {
 public:
  static constexpr std::int64_t kOpen = std::numeric_limits<std::int64_t>::max();

  // Test thread: this many more steps, then hold.
  void allow(std::int64_t n_steps) {
    const std::lock_guard lock(mutex_);
    n_allowed_ = n_steps;
    changed_.notify_all();
  }

  // Test thread: until the decode thread stands at the closed gate.
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_ && n_allowed_ == 0; });
  }

  // Decode thread.
  void pass() {
    std::unique_lock lock(mutex_);
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return n_allowed_ > 0; });
    held_ = false;
    if (n_allowed_ != kOpen) --n_allowed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t n_allowed_ = kOpen;
  bool held_ = false;
};

// What the stepper does. Set before the thread starts; the gate and the counters at any time.
struct Script {
  std::int32_t n_ctx = 512;
  std::int32_t n_chunk = 8;                          // prompt tokens a step
  std::function<void(const Slot&)> on_begin;         // may throw
  std::function<void(const Slot&)> before_token;     // may throw
  std::function<void(std::span<Slot>)> before_step;  // may throw
  std::function<bool()> on_idle;                     // as Stepper::use_idle_time()
  std::function<bool()> wants_quiet;                 // as Stepper::wants_quiet_time()
  std::function<bool()> on_quiet;                    // as Stepper::use_quiet_time()
  Gate gate;
  // relaxed: counts, read by the test after an event or a join made them visible.
  std::atomic<int> n_forgotten{0};
  std::atomic<int> n_destroyed{0};
};

inline constexpr TokenId kEndOfText = 2;

// The n-th token (from 0) of a request; never kEndOfText.
[[nodiscard]] constexpr TokenId scripted_token(RequestId id, std::int32_t n) noexcept {
  return static_cast<TokenId>(10 + (id * 31 + static_cast<std::uint64_t>(n) * 7) % 1000);
}

class ScriptedStepper final : public Stepper {
 public:
  explicit ScriptedStepper(Script& script) : script_(script) {}
  ~ScriptedStepper() override { script_.n_destroyed.fetch_add(1, std::memory_order_relaxed); }
  bool use_idle_time() override { return script_.on_idle && script_.on_idle(); }
  [[nodiscard]] bool wants_quiet_time() override {
    return script_.wants_quiet && script_.wants_quiet();
  }
  bool use_quiet_time() override { return script_.on_quiet(); }

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return script_.n_ctx; }

  std::int32_t begin(Slot& slot) override {
    if (script_.on_begin) script_.on_begin(slot);
    const std::size_t n_common =
        slot.spec->cache_prompt ? common_prefix_length(slot.cells, slot.spec->prompt) : 0;
    slot.cells.resize(std::min(n_common, slot.spec->prompt.size() - 1));
    return slot.n_cells();
  }

  void step(std::span<Slot> slots, EventPublisher& events) override {
    script_.gate.pass();
    if (script_.before_step) script_.before_step(slots);
    for (Slot& slot : slots) {
      if (slot.phase == SlotPhase::kPrefill) {
        prefill(slot, events);
      } else if (slot.phase == SlotPhase::kDecode) {
        slot.cells.push_back(slot.next_token);
        decode(slot, events);
      }
    }
  }

  void forget(Slot& slot) override {
    script_.n_forgotten.fetch_add(1, std::memory_order_relaxed);
    slot.cells.clear();
  }

  // A slot's state is its tokens.
  [[nodiscard]] std::size_t state_bytes(const Slot& slot) override {
    return slot.cells.size() * sizeof(TokenId);
  }
  [[nodiscard]] bool copy_state(const Slot& slot, std::span<std::byte> to) override {
    if (to.size() != state_bytes(slot)) return false;
    std::copy_n(reinterpret_cast<const std::byte*>(slot.cells.data()), to.size(), to.data());
    return true;
  }
  [[nodiscard]] bool restore_state(Slot& slot, const SlotState& state) override {
    const bool fits = state.tokens.size() <= static_cast<std::size_t>(script_.n_ctx) &&
                      state.n_bytes == state.tokens.size() * sizeof(TokenId);
    if (fits) slot.cells = state.tokens;
    return fits;
  }

 private:
  void prefill(Slot& slot, EventPublisher& events) {
    const auto& prompt = slot.spec->prompt;
    const std::size_t n =
        std::min(prompt.size() - slot.cells.size(), static_cast<std::size_t>(script_.n_chunk));
    const auto first = prompt.begin() + slot.n_cells();
    slot.cells.insert(slot.cells.end(), first, first + static_cast<std::ptrdiff_t>(n));
    events.prefilled(slot, 0);
    if (slot.cells.size() < prompt.size()) return;
    slot.phase = SlotPhase::kDecode;
    decode(slot, events);
  }

  void decode(Slot& slot, EventPublisher& events) {
    if (script_.before_token) script_.before_token(slot);
    slot.next_token = scripted_token(slot.spec->id, slot.n_decoded);
    ++slot.n_decoded;
    events.token(slot, slot.next_token, 0.0F);
    if (slot.n_decoded == slot.spec->max_tokens) {
      events.finished(slot, FinishReason::kTokenLimit);
    } else if (slot.n_cells() + 1 >= script_.n_ctx) {
      events.finished(slot, FinishReason::kContextLimit);
    }
  }

  Script& script_;
};

[[nodiscard]] inline DecodeThread::StepperFactory factory_of(Script& script) {
  return [&script] { return std::make_unique<ScriptedStepper>(script); };
}

// Prompts of different bases share no prefix.
[[nodiscard]] inline std::vector<TokenId> prompt_of(std::int32_t n, TokenId base = 1000) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) prompt[static_cast<std::size_t>(i)] = base + i;
  return prompt;
}

[[nodiscard]] inline std::vector<TokenId> scripted_tokens(RequestId id, std::int32_t n) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < n; ++i) tokens.push_back(scripted_token(id, i));
  return tokens;
}

}  // namespace unpaced::test
