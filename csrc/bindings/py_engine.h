// The engine plus what the Python side of the token ring needs.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python.h"
#include "bindings/token_event.h"
#include "bindings/token_frames.h"
#include "engine/engine.h"
#include "streams/event_relay.h"

namespace unpaced {

class PyEngine {
 public:
  explicit PyEngine(const EngineConfig& config)
      : engine_(std::make_unique<Engine>(config)), ring_(*engine_), relay_(ring_) {}
  ~PyEngine() {
    if (is_leaked_) static_cast<void>(engine_.release());
  }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  Engine& get() noexcept { return *engine_; }

  // Any thread. See Engine::stop_within(). The last events are the event loop's.
  bool stop_within(std::chrono::nanoseconds limit) {
    const bool is_stopped = engine_->stop_within(limit);
    relay_.retire();
    return is_stopped;
  }
  // See Engine::abandon().
  void abandon(const std::string& why, FinishReason reason) {
    relay_.retire();
    is_leaked_ = engine_->abandon(why.c_str(), reason);
  }

  // Takes the wake-up down, and everything that is the event loop's: the events, and whom to tell
  // of new frames.
  nb::tuple drain() {
    drained_.clear();
    relay_.drain(drained_);
    engine_->settle(drained_);
    nb::list events;
    for (const TokenEvent& event : drained_) append(events, event);
    nb::list listeners;
    for (const RequestId id : relay_.take_news()) {
      const auto found = std::ranges::find(listeners_, id, &Listener::request_id);
      if (found != listeners_.end()) listeners.append(found->call);
    }
    return nb::make_tuple(events, listeners);
  }

  // From here on the request's tokens become frames and no events. False: drain() first.
  bool frame(RequestId request_id, std::shared_ptr<PyTokenFrames> frames, nb::object listener) {
    unframe(request_id);
    if (!relay_.frame(request_id, std::move(frames))) return false;
    listeners_.push_back({request_id, std::move(listener)});
    return true;
  }
  nb::bytes unframe(RequestId request_id) {
    const std::string rest = relay_.unframe(request_id);
    std::erase_if(listeners_,
                  [request_id](const Listener& l) { return l.request_id == request_id; });
    return to_bytes(rest);
  }
  // See EventRelay.
  bool attach(RequestId request_id, int socket) { return relay_.attach(request_id, socket); }

  // Announces that the reader will sleep. False: there is news, drain first.
  bool park() { return relay_.park(); }

 private:
  struct Listener {
    RequestId request_id;
    nb::object call;
  };
  class Ring final : public EventSource {
   public:
    explicit Ring(Engine& engine) noexcept : engine_(engine) {}
    std::size_t pop(TokenEvent* out, std::size_t max) noexcept override {
      return engine_.pop(out, max);
    }
    void change_reader() noexcept override { engine_.change_reader(); }
    bool has_events() const noexcept override { return engine_.has_events(); }
    Wakeup& wakeup() noexcept override { return engine_.decode_thread().reader_wakeup(); }

   private:
    Engine& engine_;
  };

  void append(nb::list& events, const TokenEvent& record) {
    if (record.kind == EventKind::kLogprobs) {
      // A slot's alternatives directly precede the event they belong to.
      alternatives_.insert(alternatives_.end(), record.logprobs.pair,
                           record.logprobs.pair + record.logprobs.n_pairs);
      return;
    }
    events.append(PyTokenEvent{record, std::exchange(alternatives_, {})});
  }

  std::unique_ptr<Engine> engine_;
  bool is_leaked_ = false;
  Ring ring_;
  EventRelay relay_;
  std::vector<TokenEvent> drained_;
  std::vector<TokenLogprob> alternatives_;
  std::vector<Listener> listeners_;
};

nb::dict model_info(PyEngine& self);
nb::dict counters(PyEngine& self);
nb::dict decode_loop(PyEngine& self);

}  // namespace unpaced
