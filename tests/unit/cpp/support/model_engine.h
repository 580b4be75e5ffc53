// A decode thread over the real HostStepper and a real model, one ggml thread: the demo model, or
// the one that UNPACED_TEST_MODEL names.
#pragma once

#include <llama.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "backend/cpu_backend.h"
#include "front_end.h"
#include "host/host_stepper.h"
#include "log/log_sink.h"
#include "model/model.h"

namespace unpaced::test {

inline std::string test_model_path() {
  const char* path = std::getenv("UNPACED_TEST_MODEL");
  return path != nullptr ? path : UNPACED_DEFAULT_TEST_MODEL;
}

class ModelEngine {
 public:
  // Wraps the stepper where `wrap` is given.
  using Wrap = std::function<std::unique_ptr<Stepper>(std::unique_ptr<Stepper>)>;

  // turn_us, always_copies: of SlotKeeperOptions. How long copies take depends on who else is at
  // work: what is to be the same each time copies always.
  explicit ModelEngine(EngineConfig config, std::size_t n_events = 4096, const Wrap& wrap = nullptr,
                       std::int64_t turn_us = SlotKeeperOptions{}.turn_us,
                       bool always_copies = true)
      : front({.n_slots = config.n_slots,
               .n_waiting_max = config.n_waiting_max,
               .keeper = {.cache_bytes_max = config.cache_bytes_max,
                          .cache_idle_slots = config.cache_idle_slots,
                          .clear_idle_slots = config.kv_unified,
                          .turn_us = turn_us,
                          .always_copies = always_copies},
               .n_events = n_events}) {
    init_backends();
    install_log_sink(LogLevel::kError);
    if (config.model_path.empty()) config.model_path = test_model_path();
    front.start([this, config, wrap]() -> std::unique_ptr<Stepper> {
      auto model = std::make_shared<Model>(config, progress_, front.thread().stop_flag());
      n_vocab = model->n_vocab();
      auto stepper = std::make_unique<HostStepper>(model, config, front.thread().counters());
      return wrap ? wrap(std::move(stepper)) : std::move(stepper);
    });
    if (front.thread().state() != EngineState::kReady) {
      std::fprintf(stderr, "%s\n", front.thread().error().c_str());
    }
  }

  // Distinct, ordinary tokens.
  [[nodiscard]] std::vector<TokenId> prompt(std::int32_t n, std::int32_t first = 0) const {
    std::vector<TokenId> tokens;
    for (std::int32_t i = 0; i < n; ++i) {
      tokens.push_back(n_vocab / 2 + (first + i) % (n_vocab / 2));
    }
    return tokens;
  }

  // Greedy, and no end but the limit: the model's EOG tokens are banned.
  [[nodiscard]] std::unique_ptr<RequestSpec> greedy(std::vector<TokenId> prompt,
                                                    std::int32_t max_tokens) const {
    auto spec = std::make_unique<RequestSpec>();
    spec->prompt = std::move(prompt);
    spec->max_tokens = max_tokens;
    spec->sampling.temperature = 0.0F;
    spec->sampling.seed = 1;
    for (TokenId token = 0; token < 8; ++token) spec->logit_bias.push_back({token, -1e9F});
    return spec;
  }

  std::int32_t n_vocab = 0;

 private:
  LoadProgress progress_;

 public:
  FrontEnd front;  // last: its thread uses the others
};

}  // namespace unpaced::test
