#include "streams/event_relay.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/time_slice.h"

namespace unpaced {

EventRelay::~EventRelay() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  source_.wakeup().next_turn();
  if (thread_.joinable()) thread_.join();
}

void EventRelay::drain(std::vector<TokenEvent>& events) {
  const std::lock_guard lock(mutex_);
  is_parked_ = false;
  events.insert(events.end(), handed_.begin(), handed_.end());
  handed_.clear();
  const bool was_full = std::exchange(is_full_, false);
  if (is_threads_) {
    source_.wakeup().clear();
    if (was_full) source_.wakeup().next_turn();
    return;
  }
  source_.wakeup().acknowledge();
  for (;;) {
    const std::size_t n = source_.pop(buffer_.data(), buffer_.size());
    for (std::size_t i = 0; i < n; ++i) {
      if (!put_into_frames(buffer_[i])) events.push_back(buffer_[i]);
    }
    if (n < buffer_.size()) return;
  }
}

bool EventRelay::park() {
  const std::lock_guard lock(mutex_);
  if (has_news()) return false;
  if (!is_threads_) {
    source_.wakeup().prepare_park();
    if (source_.has_events()) {
      source_.wakeup().cancel_park();
      return false;
    }
  }
  is_parked_ = true;
  return true;
}

std::vector<RequestId> EventRelay::take_news() {
  const std::lock_guard lock(mutex_);
  std::vector<RequestId> ids;
  for (Framed& framed : framed_) {
    if (!std::exchange(framed.has_news, false)) continue;
    if (framed.frames->has_news()) ids.push_back(framed.request_id);
  }
  return ids;
}

bool EventRelay::frame(RequestId request_id, std::shared_ptr<TokenFrames> frames) {
  const std::lock_guard lock(mutex_);
  const auto is_its = [&](const TokenEvent& event) { return event.request_id == request_id; };
  if (std::ranges::any_of(handed_, is_its)) return false;
  framed_.push_back({.request_id = request_id, .frames = std::move(frames)});
  return true;
}

bool EventRelay::attach(RequestId request_id, int socket) {
  const std::lock_guard lock(mutex_);
  Framed* framed = find(request_id);
  if (framed == nullptr || is_retired_) return false;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no more threads: the event loop does it
    return false;
  }
  if (!framed->frames->attach(socket)) return false;
  framed->is_attached = true;
  choose_reader();
  return true;
}

std::string EventRelay::unframe(RequestId request_id) {
  std::shared_ptr<TokenFrames> ended;  // whose end may run Python
  const std::lock_guard lock(mutex_);
  Framed* framed = find(request_id);
  if (framed == nullptr) return {};
  ended = std::move(framed->frames);
  framed_.erase(framed_.begin() + (framed - framed_.data()));
  choose_reader();
  return ended->detach();
}

void EventRelay::retire() {
  const std::lock_guard lock(mutex_);
  is_retired_ = true;
  for (Framed& framed : framed_) {
    framed.has_news |= std::exchange(framed.is_attached, false);
    framed.frames->let_go();
  }
  choose_reader();
  source_.wakeup().ring();
}

EventRelay::Framed* EventRelay::find(RequestId request_id) noexcept {
  const auto found = std::ranges::find(framed_, request_id, &Framed::request_id);
  return found == framed_.end() ? nullptr : &*found;
}

bool EventRelay::put_into_frames(const TokenEvent& event) {
  if (framed_.empty()) return false;
  Framed* framed = find(event.request_id);
  if (framed == nullptr) return false;
  // With the request's end what is there goes out together.
  framed->is_due = event.kind == EventKind::kToken;
  if (!framed->is_due) return false;
  framed->has_news |= !framed->is_attached;
  return framed->frames->add(event.token.token, event.token.n_decoded, event.t_us);
}

void EventRelay::choose_reader() noexcept {
  const bool is_threads = std::ranges::any_of(framed_, &Framed::is_attached);
  if (is_threads == std::exchange(is_threads_, is_threads)) return;
  Wakeup& wakeup = source_.wakeup();
  source_.change_reader();
  if (is_threads) {
    // In the thread's place, which sleeps.
    wakeup.prepare_park_on_turn();
  } else {
    wakeup.prepare_park();
  }
  if (source_.has_events()) wakeup.notify();
}

void EventRelay::run() {
  pthread_setname_np(pthread_self(), "writer");
  shorten_time_slice(kFrontEndSlice);
  Wakeup& wakeup = source_.wakeup();
  for (bool is_over = false; !is_over;) {
    const std::uint32_t turn = wakeup.turn();
    bool wakes = false;
    bool sleeps = true;
    {
      const std::lock_guard lock(mutex_);
      is_over = is_over_;
      if (is_threads_ && !is_full_) {
        wakes = take_turn();
        sleeps = !is_threads_ || is_full_ || may_park();
      }
    }
    if (wakes) wakeup.ring();  // who wakes up wants the mutex
    if (sleeps && !is_over) wakeup.wait_turn(turn);
  }
}

bool EventRelay::may_park() noexcept {
  source_.wakeup().prepare_park_on_turn();
  if (!source_.has_events()) return true;
  source_.wakeup().cancel_park();
  return false;
}

bool EventRelay::take_turn() {
  std::size_t n = 0;
  do {
    n = source_.pop(buffer_.data(), buffer_.size());
    for (std::size_t i = 0; i < n; ++i) {
      if (!put_into_frames(buffer_[i])) handed_.push_back(buffer_[i]);
    }
  } while (n == buffer_.size() && handed_.size() < kHandedMax);
  is_full_ = handed_.size() >= kHandedMax;
  send_frames();
  return has_news() && std::exchange(is_parked_, false);
}

bool EventRelay::has_news() const {
  return !handed_.empty() || std::ranges::any_of(framed_, &Framed::has_news);
}

void EventRelay::send_frames() {
  for (Framed& framed : framed_) {
    if (!std::exchange(framed.is_due, false) || !framed.is_attached) continue;
    framed.is_attached = framed.frames->send();
    framed.has_news = !framed.is_attached;
  }
  choose_reader();
}

}  // namespace unpaced
