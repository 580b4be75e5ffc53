// The engine plus what the Python side of the token ring needs.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/python.h"
#include "bindings/token_event.h"
#include "bindings/token_frames.h"
#include "engine/engine.h"

namespace unpaced {

class PyEngine {
 public:
  explicit PyEngine(const EngineConfig& config) : engine_(std::make_unique<Engine>(config)) {}
  ~PyEngine() {
    if (is_leaked_) static_cast<void>(engine_.release());
  }
  PyEngine(const PyEngine&) = delete;
  PyEngine& operator=(const PyEngine&) = delete;

  Engine& get() noexcept { return *engine_; }

  // See Engine::abandon().
  void abandon(const std::string& why, FinishReason reason) noexcept {
    is_leaked_ = engine_->abandon(why.c_str(), reason);
  }

  // Takes the wake-up down, and everything out of the ring: the events, and whom to tell of new
  // frames.
  nb::tuple drain() {
    engine_->decode_thread().reader_wakeup().acknowledge();
    nb::list events;
    for (;;) {
      const std::size_t n = engine_->drain(buffer_.data(), buffer_.size());
      for (std::size_t i = 0; i < n; ++i) append(events, buffer_[i]);
      if (n < buffer_.size()) break;
    }
    nb::list listeners;
    for (const Framed& framed : framed_) {
      if (!framed.frames->empty()) listeners.append(framed.listener);
    }
    return nb::make_tuple(events, listeners);
  }

  // From here on the request's tokens become frames and no events.
  void frame(RequestId request_id, std::shared_ptr<TokenFrames> frames, nb::object listener) {
    unframe(request_id);
    framed_.push_back({request_id, std::move(frames), std::move(listener)});
  }
  void unframe(RequestId request_id) noexcept {
    std::erase_if(framed_, [request_id](const Framed& f) { return f.request_id == request_id; });
  }

  // Announces that the reader will sleep. False: there is news, drain first.
  bool park() noexcept {
    Wakeup& wakeup = engine_->decode_thread().reader_wakeup();
    wakeup.prepare_park();
    if (!engine_->has_events()) return true;
    wakeup.cancel_park();
    return false;
  }

 private:
  struct Framed {
    RequestId request_id;
    std::shared_ptr<TokenFrames> frames;
    nb::object listener;
  };

  // As many as there are streams at most: a handful.
  [[nodiscard]] TokenFrames* frames_of(const TokenEvent& record) const noexcept {
    if (record.kind != EventKind::kToken) return nullptr;
    const auto found = std::find_if(framed_.begin(), framed_.end(), [&record](const Framed& f) {
      return f.request_id == record.request_id;
    });
    return found == framed_.end() ? nullptr : found->frames.get();
  }

  void append(nb::list& events, const TokenEvent& record) {
    if (TokenFrames* frames = frames_of(record)) {
      frames->add(record.token.token, record.token.n_decoded, record.t_us);
      return;
    }
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
  std::array<TokenEvent, 256> buffer_{};
  std::vector<TokenLogprob> alternatives_;
  std::vector<Framed> framed_;
};

nb::dict model_info(PyEngine& self);
nb::dict counters(PyEngine& self);
nb::dict decode_loop(PyEngine& self);

}  // namespace unpaced
