// The front end's side of a DecodeThread, for tests: submits, sleeps on the wake-up, collects the
// events of each request and checks what holds for every request.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "check.h"
#include "decode/decode_thread.h"

namespace unpaced::test {

class FrontEnd {
 public:
  static constexpr std::chrono::seconds kPatience{30};

  explicit FrontEnd(const DecodeThreadOptions& options) : thread_(options) {}

  // Starts and waits until the state is no longer kLoading.
  void start(DecodeThread::StepperFactory make_stepper) {
    thread_.start(std::move(make_stepper));
    REQUIRE(run_until([this] { return thread_.state() != EngineState::kLoading; }));
  }

  [[nodiscard]] DecodeThread& thread() noexcept { return thread_; }

  // A request over `prompt`. Returns its id, 0 if the thread took no more.
  RequestId submit(std::vector<TokenId> prompt, std::int32_t max_tokens) {
    auto spec = std::make_unique<RequestSpec>();
    spec->prompt = std::move(prompt);
    spec->max_tokens = max_tokens;
    return submit(std::move(spec));
  }

  RequestId submit(std::unique_ptr<RequestSpec> spec) {
    const RequestId id = spec->id = next_id_++;
    RequestSpec* on_loan = spec.get();
    on_loan_.emplace(id, std::move(spec));
    if (thread_.submit(on_loan)) return id;
    on_loan_.erase(id);
    return 0;
  }

  // A slot action; its id is set here.
  [[nodiscard]] bool submit(SlotAction& action) {
    action.id = next_id_++;
    actions_.insert(action.id);
    if (thread_.submit(&action)) return true;
    actions_.erase(action.id);
    return false;
  }

  // Everything that is there now.
  std::size_t drain() {
    std::size_t n_drained = 0;
    TokenEvent buffer[16];
    while (const std::size_t n = thread_.drain(buffer, 16)) {
      for (std::size_t i = 0; i < n; ++i) take(buffer[i]);
      n_drained += n;
    }
    return n_drained;
  }

  // Takes events until `done`; false: nothing happened for kPatience.
  template <class Done>
  [[nodiscard]] bool run_until(Done done) {
    for (;;) {
      drain();
      if (done()) return true;
      thread_.reader_wakeup().prepare_park();
      ++n_parks_;
      if (thread_.n_events_approx() > 0 || done()) {
        thread_.reader_wakeup().cancel_park();
      } else if (!thread_.reader_wakeup().wait_for(kPatience)) {
        return false;
      }
    }
  }

  [[nodiscard]] bool run_until_finished(RequestId id) {
    return run_until([this, id] { return finished(id); });
  }
  [[nodiscard]] bool run_until_all_finished() {
    return run_until([this] { return on_loan_.empty(); });
  }

  [[nodiscard]] const std::vector<TokenEvent>& events(RequestId id) { return events_[id]; }
  [[nodiscard]] bool finished(RequestId id) {
    return !events_[id].empty() && events_[id].back().kind == EventKind::kFinished;
  }
  [[nodiscard]] FinishReason reason(RequestId id) {
    return finished(id) ? events_[id].back().finish_reason : FinishReason::kNone;
  }
  [[nodiscard]] int count(RequestId id, EventKind kind) {
    int n = 0;
    for (const TokenEvent& event : events_[id]) n += event.kind == kind ? 1 : 0;
    return n;
  }
  [[nodiscard]] std::vector<TokenId> tokens(RequestId id) {
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events_[id]) {
      if (event.kind == EventKind::kToken) tokens.push_back(event.token.token);
    }
    return tokens;
  }
  [[nodiscard]] std::size_t n_on_loan() const noexcept { return on_loan_.size(); }
  [[nodiscard]] std::uint64_t n_parks() const noexcept { return n_parks_; }
  // Ids in the order in which their first event of this kind came.
  [[nodiscard]] std::vector<RequestId> order_of(EventKind kind) const {
    std::vector<RequestId> ids;
    for (const auto& [event_kind, id] : order_) {
      if (event_kind == kind) ids.push_back(id);
    }
    return ids;
  }

 private:
  void take(const TokenEvent& event) {
    std::vector<TokenEvent>& events = events_[event.request_id];
    // Not after its end, and of no unknown request.
    CHECK(on_loan_.contains(event.request_id) || actions_.contains(event.request_id));
    CHECK_EQ(event.sequence_number, events.size());
    if (!events.empty()) CHECK(event.t_us >= events.back().t_us);
    if (event.kind == EventKind::kStarted || event.kind == EventKind::kFinished) {
      order_.emplace_back(event.kind, event.request_id);
    }
    events.push_back(event);
    // The loan is over: a decode thread that still looks at it is caught by AddressSanitizer.
    if (event.kind != EventKind::kFinished) return;
    if (on_loan_.erase(event.request_id) == 0) actions_.erase(event.request_id);
  }

  std::map<RequestId, std::unique_ptr<RequestSpec>> on_loan_;
  std::set<RequestId> actions_;
  std::map<RequestId, std::vector<TokenEvent>> events_;
  std::vector<std::pair<EventKind, RequestId>> order_;
  RequestId next_id_ = 1;
  std::uint64_t n_parks_ = 0;
  DecodeThread thread_;  // last: it ends before what it has on loan
};

}  // namespace unpaced::test
