// A stepper without an engine around it: slots, events, and requests that are played to their ends.
#pragma once

#include <llama.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cpu_backend.h"
#include "decode/counters.h"
#include "decode/event_publisher.h"
#include "device/stepper/device_stepper.h"
#include "engine/stepper_factory.h"
#include "host/host_stepper.h"
#include "model/model.h"

namespace unpaced::test {

constexpr std::int32_t kSlots = 8;  // where nothing else is said
constexpr std::int32_t kCells = 16384;

inline int n_failed = 0;

inline void expect(bool holds, const std::string& what) {
  std::printf("%s: %s\n", holds ? "ok" : "FAILED", what.c_str());
  if (!holds) ++n_failed;
}

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> pairs;
  FinishReason reason = FinishReason::kNone;
};

// What happens from outside before the n-th call of step().
using Happen = std::function<void(int n)>;

// A stepper, and the slots and events that a decode thread has.
class Stage {
 public:
  Stage(const Model& model, Stepper& stepper, Counters& counters)
      : model_(model),
        stepper_(stepper),
        counters_(counters),
        ring_(1U << 16U),
        events_(ring_, reader_, space_, stop_, counters) {}

  // Who begins at once computes the prompt in one batch with the others.
  std::vector<Answer> play(std::vector<RequestSpec> requests, std::size_t n_at_once,
                           const Happen& happen = {}) {
    llama_memory_clear(llama_get_memory(model_.context()), true);
    specs_ = std::move(requests);
    slots_.assign(specs_.size(), Slot{});
    answers_.assign(specs_.size(), Answer{});
    n_device_ = counters_.n_tokens_device.get();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      slots_[i].id = slots_[i].sequence = static_cast<std::int32_t>(i);
      slots_[i].cells.reserve(kCells);
      specs_[i].id = ++last_id_;
      if (i < n_at_once) begin(i);
    }
    for (int n = 0; is_any_active(); ++n) {
      if (n > 100000) throw std::runtime_error("the requests do not end");
      if (happen) happen(n);
      stepper_.step(slots_, events_);
      drain();
    }
    stepper_.settle(events_);
    drain();
    n_device_ = counters_.n_tokens_device.get() - n_device_;
    for (Slot& slot : slots_) stepper_.forget(slot);
    return answers_;
  }

  void begin(std::size_t i) {
    settle();
    Slot& slot = slots_[i];
    slot.spec = &specs_[i];
    slot.phase = SlotPhase::kPrefill;
    slot.n_decoded = 0;
    slot.next_token = -1;
    slot.next_sequence_number = 0;
    static_cast<void>(stepper_.begin(slot));
  }
  void cancel(std::size_t i) {
    settle();
    if (slots_[i].active()) events_.finished(slots_[i], FinishReason::kCancelled);
    drain();
  }
  void settle() {
    stepper_.settle(events_);
    drain();
  }
  // Of the last play(): tokens that the GPU drew in its loop.
  [[nodiscard]] std::uint64_t n_device() const { return n_device_; }
  [[nodiscard]] const std::vector<Answer>& answers() const { return answers_; }
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }

 private:
  [[nodiscard]] bool is_any_active() const {
    for (const Slot& slot : slots_) {
      if (slot.active()) return true;
    }
    return false;
  }

  void drain() {
    TokenEvent event;
    while (ring_.try_pop(event)) {
      Answer& answer = answers_[event.slot];
      if (event.kind == EventKind::kToken) answer.tokens.push_back(event.token.token);
      if (event.kind == EventKind::kFinished) answer.reason = event.finish_reason;
      if (event.kind != EventKind::kLogprobs) continue;
      answer.pairs.insert(answer.pairs.end(), event.logprobs.pair,
                          event.logprobs.pair + event.logprobs.n_pairs);
    }
  }

  const Model& model_;
  Stepper& stepper_;
  Counters& counters_;
  SpscRing<TokenEvent> ring_;
  Wakeup reader_;
  Wakeup space_;
  std::atomic<bool> stop_{false};
  EventPublisher events_;
  std::vector<Slot> slots_;
  std::vector<RequestSpec> specs_;
  std::vector<Answer> answers_;
  RequestId last_id_ = 0;
  std::uint64_t n_device_ = 0;
};

// The model as these tests load it, and a stepper of either kind for it.
class Steppers {
 public:
  // is_unified: the slots share the KV cache's cells; else each has a stream of its own.
  Steppers(const char* path, DecodeLoop loop, std::int32_t n_slots = kSlots, bool is_unified = true)
      : config(config_of(path, n_slots, is_unified)), model(load(config)) {
    device = std::make_unique<DeviceStepper>(model, config, counters, loop, DrawLimits{}, n_slots);
    device->prepare(n_slots);
    host = std::make_unique<HostStepper>(model, config, counters);
  }

  const EngineConfig config;
  const std::shared_ptr<Model> model;
  Counters counters;
  std::unique_ptr<DeviceStepper> device;
  std::unique_ptr<HostStepper> host;

 private:
  static EngineConfig config_of(const char* path, std::int32_t n_slots, bool is_unified) {
    EngineConfig made;
    made.model_path = path;
    made.n_ctx = kCells;
    made.n_slots = n_slots;
    made.kv_unified = is_unified;
    made.flash_attn = 1;
    made.warmup = false;
    made.stall_us = 20'000'000;
    static_cast<void>(configure_device(made));
    init_backends();
    return made;
  }
  static std::shared_ptr<Model> load(const EngineConfig& config) {
    LoadProgress progress;
    const std::atomic<bool> stop = false;
    return std::make_shared<Model>(config, progress, stop);
  }
};

// The i-th of eight kinds of chain, seeded; those from 8 on are the same with other seeds.
inline void set_chain(SamplingParams& sampling, std::size_t i) {
  sampling = {};
  sampling.seed = static_cast<std::uint32_t>(100 + i);
  sampling.temperature = 1.0F;
  if (i % 8 == 1) sampling.top_k = 0;
  if (i % 8 == 2) sampling.repeat_penalty = 1.2F;
  if (i % 8 == 3) sampling.mirostat = 2;
  if (i % 8 == 4) sampling.temperature = 0.0F;
  if (i % 8 == 5) sampling.dry_multiplier = 0.8F;
  if (i % 8 == 6) sampling.xtc_probability = 0.5F;
  if (i % 8 == 7) sampling.top_k = 500;
}

// Where the answers part; empty: nowhere.
inline std::string difference(const Answer& expected, const Answer& found) {
  const auto [a, b] = std::mismatch(expected.tokens.begin(), expected.tokens.end(),
                                    found.tokens.begin(), found.tokens.end());
  if (a != expected.tokens.end() || b != found.tokens.end()) {
    return "token " + std::to_string(a - expected.tokens.begin()) + " of " +
           std::to_string(expected.tokens.size()) + " and " + std::to_string(found.tokens.size());
  }
  if (expected.reason == found.reason) return "";
  return "end " + std::to_string(static_cast<int>(expected.reason)) + " and " +
         std::to_string(static_cast<int>(found.reason));
}

}  // namespace unpaced::test
