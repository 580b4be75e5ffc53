// The engine plus what the Python side of the token ring needs.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "bindings/python.h"
#include "bindings/token_event.h"
#include "engine.h"

namespace unpaced {

class PyEngine {
 public:
  explicit PyEngine(const EngineConfig& config) : engine_(config) {}

  Engine& get() noexcept { return engine_; }

  // Everything that is in the ring now.
  nb::list drain() {
    nb::list events;
    for (;;) {
      const std::size_t n = engine_.drain(buffer_.data(), buffer_.size());
      for (std::size_t i = 0; i < n; ++i) append(events, buffer_[i]);
      if (n < buffer_.size()) return events;
    }
  }

  // Announces that the reader will sleep. False: there is news, drain first.
  bool park() noexcept {
    DecodeThread& thread = engine_.decode_thread();
    thread.reader_wakeup().prepare_park();
    if (thread.n_events_approx() == 0) return true;
    thread.reader_wakeup().cancel_park();
    return false;
  }

 private:
  void append(nb::list& events, const TokenEvent& record) {
    if (record.kind == EventKind::kLogprobs) {
      // A slot's alternatives directly precede the event they belong to.
      alternatives_.insert(alternatives_.end(), record.logprobs.pair,
                           record.logprobs.pair + record.logprobs.n_pairs);
      return;
    }
    events.append(PyTokenEvent{record, std::exchange(alternatives_, {})});
  }

  Engine engine_;
  std::array<TokenEvent, 256> buffer_{};
  std::vector<TokenLogprob> alternatives_;
};

nb::dict model_info(PyEngine& self);
nb::dict counters(PyEngine& self);
nb::dict decode_loop(PyEngine& self);

}  // namespace unpaced
