// Who takes the events out of the token ring: the event loop, or in its place a thread that needs
// no Python.
//
// A stream that holds nothing but its tokens' text needs nobody but its socket. While there is one,
// a thread of this class takes the events, makes and sends the frames of such streams, and hands
// the other events over; the event loop sleeps on. At a large model's pace everything is cold in
// the caches, and waking the event loop for a token takes twice what all the rest of it does
// (docs/bench/sse.md). While there is none the event loop takes the events itself, and the thread
// sleeps: nobody waits for two threads to wake.
//
// The mutex says whose turn at the ring it is. Nobody holds it for longer than it takes to handle
// what the ring holds, and nobody who holds it waits for anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/wakeup.h"
#include "request/records.h"
#include "streams/token_frames.h"

namespace unpaced {

// The token ring, as its one reader sees it.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Up to `max` events, the oldest first; returns how many.
  [[nodiscard]] virtual std::size_t pop(TokenEvent* out, std::size_t max) noexcept = 0;
  // Whether there are some, as far as can be said while they come.
  [[nodiscard]] virtual bool has_events() const noexcept = 0;
  // Another thread is the reader from here on.
  virtual void change_reader() noexcept = 0;
  // Wakes the reader.
  [[nodiscard]] virtual Wakeup& wakeup() noexcept = 0;
};

// Event loop's thread, but for retire().
class EventRelay {
 public:
  explicit EventRelay(EventSource& source) noexcept : source_(source) {}
  ~EventRelay();
  EventRelay(const EventRelay&) = delete;
  EventRelay& operator=(const EventRelay&) = delete;

  // Takes the wake-up down, and appends all events that are not in frames.
  void drain(std::vector<TokenEvent>& events);
  // Announces that the event loop will sleep. False: there is news, drain first.
  [[nodiscard]] bool park();
  // The requests whose frames the event loop is to write, each once.
  [[nodiscard]] std::vector<RequestId> take_news();

  // From here on the request's tokens go to `frames` and are no events. False, and nothing has
  // happened: drain() first, some of its events wait there.
  [[nodiscard]] bool frame(RequestId request_id, std::shared_ptr<TokenFrames> frames);
  // Of a request that has frames: the thread sends them. See TokenFrames::attach().
  [[nodiscard]] bool attach(RequestId request_id, int socket);
  // Ends both. See TokenFrames::detach().
  std::string unframe(RequestId request_id);
  // Any thread: the relay's own takes nothing any more; what streams have not sent is the event
  // loop's to write.
  void retire();

 private:
  struct Framed {
    RequestId request_id;
    std::shared_ptr<TokenFrames> frames;
    bool is_attached = false;
    bool is_due = false;    // in this turn of the thread's there is something of it to send
    bool has_news = false;  // the event loop has not been told yet of what it is to write
  };
  // More wait for the event loop than the ring holds: the decode thread is to wait, too.
  static constexpr std::size_t kHandedMax = 8192;

  void run();
  // All of it is for who has taken the mutex.
  [[nodiscard]] Framed* find(RequestId request_id) noexcept;
  // True: the event is in frames.
  [[nodiscard]] bool put_into_frames(const TokenEvent& event);
  [[nodiscard]] bool has_news() const;
  // The thread's. True: the event loop is to be woken.
  [[nodiscard]] bool take_turn();
  [[nodiscard]] bool may_park() noexcept;
  void send_frames();
  // The ring is the thread's where a stream is attached, else the event loop's.
  void choose_reader() noexcept;

  EventSource& source_;
  std::mutex mutex_;            // guards what follows
  std::vector<Framed> framed_;  // as many as there are streams at most: a handful
  std::vector<TokenEvent> handed_;
  bool is_threads_ = false;  // the ring
  bool is_full_ = false;     // the thread waits until what it handed over was taken
  bool is_parked_ = false;   // the event loop sleeps
  bool is_retired_ = false;
  bool is_over_ = false;
  std::array<TokenEvent, 256> buffer_{};  // of who reads
  std::thread thread_;                    // from the first attach() on
};

}  // namespace unpaced
