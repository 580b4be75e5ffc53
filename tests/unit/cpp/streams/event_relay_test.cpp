// Every token of every stream arrives once and in order, whoever takes it out of the ring and
// whoever writes it to the connection, while both change all the time; and nobody sleeps on.
#include "streams/event_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/spsc_ring.h"
#include "check.h"

namespace event_relay_test {
namespace {

using unpaced::EventKind;
using unpaced::EventRelay;
using unpaced::FrameField;
using unpaced::Histogram;
using unpaced::RequestId;
using unpaced::TokenEvent;
using unpaced::TokenFrames;
using unpaced::Wakeup;

std::string_view no_text(const void*, unpaced::TokenId) noexcept { return ""; }

std::shared_ptr<TokenFrames> make_frames(std::shared_ptr<Histogram> gaps, std::int32_t n_decoded) {
  // A frame is the token's number in a line.
  unpaced::FrameTemplate form;
  form.parts.push_back({.literal = "", .field = FrameField::kNumber});
  form.end = "\n";
  return std::make_shared<TokenFrames>(unpaced::PieceTable{.piece_of = &no_text, .n = 1}, form,
                                       unpaced::SequenceState{.n_decoded = n_decoded},
                                       std::move(gaps));
}

std::string as_chunk(const std::string& data) {
  std::array<char, 32> head{};
  const int n = std::snprintf(head.data(), head.size(), "%zx\r\n", data.size());
  return std::string(head.data(), static_cast<std::size_t>(n)) + data + "\r\n";
}

// "" where it is no body in chunked coding.
std::string read_chunks(const std::string& body) {
  std::string all;
  for (std::size_t at = 0; at < body.size();) {
    std::size_t n_head = 0;
    const std::size_t n = std::stoul(body.substr(at), &n_head, 16);
    at += n_head + 2;
    if (at + n + 2 > body.size() || body.compare(at + n, 2, "\r\n") != 0) return "";
    all.append(body, at, n);
    at += n + 2;
  }
  return all;
}

class Ring final : public unpaced::EventSource {
 public:
  explicit Ring(std::size_t capacity) : ring_(capacity) {}
  std::size_t pop(TokenEvent* out, std::size_t max) noexcept override {
    return ring_.pop_many(out, max);
  }
  void change_reader() noexcept override { ring_.forget_reader(); }
  bool has_events() const noexcept override { return ring_.size_approx() > 0; }
  Wakeup& wakeup() noexcept override { return wakeup_; }

  void push(const TokenEvent& event) {
    while (!ring_.try_push(event)) {
      wakeup_.notify();
      std::this_thread::yield();
    }
  }

 private:
  unpaced::SpscRing<TokenEvent> ring_;
  Wakeup wakeup_;
};

struct Stream {
  int ours = -1;  // the server's end of the connection
  int theirs = -1;
  std::int32_t n_taken = 0;  // by the event loop, as events
  std::shared_ptr<TokenFrames> frames;
  bool is_over = false;
  std::string body;  // what the client has got
};

void write_all(int socket, const std::string& data) {
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t n = ::send(socket, data.data() + at, data.size() - at, MSG_NOSIGNAL);
    if (n > 0) at += static_cast<std::size_t>(n);
  }
}

// The event loop: one thread, which sleeps where the relay says so.
class EventLoop {
 public:
  EventLoop(Ring& ring, std::vector<Stream>& streams, std::uint32_t seed)
      : ring_(ring), relay_(ring), streams_(streams), random_(seed) {}

  void run() {
    while (n_over_ < streams_.size()) {
      while (!relay_.park()) turn();
      if (n_over_ == streams_.size()) return;
      pollfd entry{.fd = ring_.wakeup().fd(), .events = POLLIN, .revents = 0};
      // Something else may be ready at any time.
      if (::poll(&entry, 1, chance(5) ? 0 : 20'000) == 0) meddle();
      turn();
    }
  }

 private:
  [[nodiscard]] bool chance(int one_in) {
    return std::uniform_int_distribution(1, one_in)(random_) == 1;
  }

  void turn() {
    events_.clear();
    relay_.drain(events_);
    std::map<RequestId, std::string> written;
    for (const TokenEvent& event : events_) take(event, written);
    for (auto& [id, text] : written) {
      Stream& stream = streams_[id];
      if (!text.empty()) write_all(stream.ours, as_chunk(text));
      if (!stream.is_over && stream.frames == nullptr && !chance(3)) frame(id);
    }
    for (const RequestId id : relay_.take_news()) on_news(id);
  }

  void take(const TokenEvent& event, std::map<RequestId, std::string>& written) {
    Stream& stream = streams_[event.request_id];
    std::string& text = written[event.request_id];
    if (stream.frames != nullptr) text += unframe(event.request_id);
    if (event.kind == EventKind::kToken) {
      CHECK_EQ(event.token.n_decoded, ++stream.n_taken);
      text += std::to_string(event.token.n_decoded) + "\n";
    } else if (event.kind == EventKind::kFinished) {
      stream.is_over = true;
      ++n_over_;
    }
  }

  void frame(RequestId id) {
    Stream& stream = streams_[id];
    auto frames = make_frames(gaps_, stream.n_taken);
    if (!relay_.frame(id, frames)) return;
    stream.frames = std::move(frames);
    if (chance(2)) static_cast<void>(relay_.attach(id, stream.ours));
  }

  std::string unframe(RequestId id) {
    Stream& stream = streams_[id];
    write_all(stream.ours, relay_.unframe(id));
    stream.n_taken = stream.frames->state().n_decoded;
    return std::exchange(stream.frames, nullptr)->take();
  }

  void on_news(RequestId id) {
    Stream& stream = streams_[id];
    if (stream.frames == nullptr) return;
    if (!chance(3) && relay_.attach(id, stream.ours)) return;
    write_all(stream.ours, stream.frames->take_chunk());
  }

  // As a ping does.
  void meddle() {
    const auto id = std::uniform_int_distribution<RequestId>(0, streams_.size() - 1)(random_);
    Stream& stream = streams_[id];
    if (stream.frames == nullptr || stream.is_over) return;
    const std::string frames = unframe(id);
    if (!frames.empty()) write_all(stream.ours, as_chunk(frames));
    if (chance(2)) frame(id);
  }

  Ring& ring_;
  EventRelay relay_;
  std::vector<Stream>& streams_;
  std::mt19937 random_;
  std::shared_ptr<Histogram> gaps_ = std::make_shared<Histogram>(std::vector<double>{1.0});
  std::vector<TokenEvent> events_;
  std::size_t n_over_ = 0;
};

TokenEvent event_of(RequestId id, EventKind kind, std::int32_t n = 0) {
  TokenEvent event{};
  event.request_id = id;
  event.kind = kind;
  if (kind == EventKind::kToken) event.token.n_decoded = n;
  return event;
}

// The decode thread: a token of each stream a step.
void decode(Ring& ring, std::size_t n_streams, std::int32_t n_tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution(0, n - 1)(random); };
  for (std::size_t id = 0; id < n_streams; ++id) ring.push(event_of(id, EventKind::kStarted));
  for (std::int32_t n = 1; n <= n_tokens; ++n) {
    for (std::size_t id = 0; id < n_streams; ++id) {
      if (below(50) == 0) ring.push(event_of(id, EventKind::kPrefill));
      ring.push(event_of(id, EventKind::kToken, n));
    }
    if (below(4) != 0) ring.wakeup().notify();
    if (below(3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(200)));
  }
  for (std::size_t id = 0; id < n_streams; ++id) ring.push(event_of(id, EventKind::kFinished));
  ring.wakeup().notify();
}

// Reads slowly, now and then, so that servers are behind.
void read_all(std::vector<Stream>& streams, const std::atomic<bool>& is_done) {
  for (bool is_last = false; !is_last;) {
    is_last = is_done.load(std::memory_order_acquire);
    for (Stream& stream : streams) {
      std::array<char, 512> buffer{};
      ssize_t n = 0;
      while ((n = ::recv(stream.theirs, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
        stream.body.append(buffer.data(), static_cast<std::size_t>(n));
        if (!is_last && n == static_cast<ssize_t>(buffer.size())) break;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

void play(std::size_t n_streams, std::int32_t n_tokens, std::size_t capacity, std::uint32_t seed) {
  std::vector<Stream> streams(n_streams);
  for (Stream& stream : streams) {
    std::array<int, 2> pair{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
    const int small = 2048;
    ::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    stream.ours = pair[0];
    stream.theirs = pair[1];
  }
  Ring ring(capacity);
  std::atomic<bool> is_done = false;
  EventLoop loop(ring, streams, seed);
  std::thread client([&] { read_all(streams, is_done); });
  std::thread decoder([&] { decode(ring, n_streams, n_tokens, seed + 1); });
  loop.run();
  decoder.join();
  is_done.store(true, std::memory_order_release);
  client.join();
  std::string expected;
  for (std::int32_t n = 1; n <= n_tokens; ++n) expected += std::to_string(n) + "\n";
  for (Stream& stream : streams) {
    CHECK_EQ(read_chunks(stream.body), expected);
    ::close(stream.ours);
    ::close(stream.theirs);
  }
}

constexpr std::int32_t kTokens = 2000 / kSanitizerSlowdown;

TEST(one_stream) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) play(1, kTokens, 64, seed);
}

TEST(many_streams) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) play(9, kTokens, 64, 100 + seed);
}

TEST(a_ring_that_is_nearly_always_full) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) play(4, kTokens, 4, 200 + seed);
}

// The other end of a ring, a relay with one stream that has its connection, and the client's end.
struct Attached {
  Ring ring{64};
  EventRelay relay{ring};
  std::array<int, 2> pair{};
  std::shared_ptr<Histogram> gaps = std::make_shared<Histogram>(std::vector<double>{});
  std::shared_ptr<TokenFrames> frames = make_frames(gaps, 0);

  // What is pushed before, the thread takes together.
  explicit Attached(const std::vector<TokenEvent>& before = {}) {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0);
    REQUIRE(relay.frame(0, frames));
    for (const TokenEvent& event : before) ring.push(event);
    REQUIRE(relay.attach(0, pair[0]));
    if (before.empty()) REQUIRE(relay.park());
  }
  ~Attached() {
    for (const int socket : pair) ::close(socket);
  }

  void decode(std::int32_t n) {
    ring.push(event_of(0, EventKind::kToken, n));
    ring.wakeup().notify();
  }
  [[nodiscard]] std::string received() {
    std::array<char, 256> buffer{};
    const ssize_t n = ::recv(pair[1], buffer.data(), buffer.size(), 0);
    return std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
  [[nodiscard]] bool wakes_the_event_loop(int wait_ms) {
    pollfd entry{.fd = ring.wakeup().fd(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, wait_ms) == 1;
  }
};

TEST(nobody_wakes_the_event_loop_for_a_token) {
  Attached stream;
  for (std::int32_t n = 1; n <= 20; ++n) {
    stream.decode(n);
    CHECK_EQ(stream.received(), as_chunk(std::to_string(n) + "\n"));
  }
  CHECK(!stream.wakes_the_event_loop(0));
  stream.ring.push(event_of(0, EventKind::kFinished));
  stream.ring.wakeup().notify();
  CHECK(stream.wakes_the_event_loop(20'000));
}

TEST(what_came_before_the_ring_changed_hands_is_taken) {
  Attached stream;
  CHECK_EQ(stream.relay.unframe(0), "");
  REQUIRE(stream.relay.frame(0, stream.frames));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the thread sleeps by now
  // The event loop does not, so that this wakes nobody.
  std::vector<TokenEvent> events;
  stream.relay.drain(events);
  stream.decode(1);
  REQUIRE(stream.relay.attach(0, stream.pair[0]));
  CHECK_EQ(stream.received(), as_chunk("1\n"));
}

TEST(with_its_end_the_last_tokens_are_the_event_loops) {
  Attached stream({event_of(0, EventKind::kToken, 1), event_of(0, EventKind::kFinished)});
  std::vector<TokenEvent> events;
  while (events.empty()) {
    if (stream.relay.park()) REQUIRE(stream.wakes_the_event_loop(20'000));
    stream.relay.drain(events);
  }
  CHECK_EQ(events.size(), 1U);
  CHECK_EQ(stream.relay.unframe(0), "");
  CHECK_EQ(stream.frames->take(), "1\n");
}

TEST(a_client_that_left_is_the_event_loops) {
  Attached stream;
  ::close(std::exchange(stream.pair[1], -1));
  stream.decode(1);
  REQUIRE(stream.wakes_the_event_loop(20'000));
  std::vector<TokenEvent> events;
  stream.relay.drain(events);
  CHECK(events.empty());
  CHECK_EQ(stream.relay.take_news().size(), 1U);
  CHECK_EQ(stream.relay.take_news().size(), 0U);
  CHECK(stream.relay.park());  // whether or not it was taken
  CHECK_EQ(stream.frames->take_chunk(), as_chunk("1\n"));
}

TEST(frames_begin_only_behind_the_events_that_are_there) {
  Attached stream;
  stream.ring.push(event_of(1, EventKind::kStarted));
  stream.ring.wakeup().notify();
  REQUIRE(stream.wakes_the_event_loop(20'000));
  CHECK(!stream.relay.frame(1, make_frames(stream.gaps, 0)));
  std::vector<TokenEvent> events;
  stream.relay.drain(events);
  CHECK_EQ(events.size(), 1U);
  CHECK(stream.relay.frame(1, make_frames(stream.gaps, 0)));
}

TEST(who_hands_over_more_than_is_taken_waits) {
  Attached stream;
  constexpr std::int32_t kMany = 30'000;
  std::thread decoder([&] {
    for (std::int32_t n = 1; n <= kMany; ++n) stream.ring.push(event_of(1, EventKind::kToken, n));
    stream.ring.push(event_of(0, EventKind::kToken, 1));
    stream.ring.wakeup().notify();
  });
  std::vector<TokenEvent> events;
  std::size_t n_most = 0;
  while (events.size() < kMany) {
    REQUIRE(stream.wakes_the_event_loop(20'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    do {
      const std::size_t n = events.size();
      stream.relay.drain(events);
      n_most = std::max(n_most, events.size() - n);
    } while (!stream.relay.park());
  }
  CHECK(n_most < 10'000);
  for (std::size_t i = 0; i < events.size(); ++i) {
    CHECK_EQ(static_cast<std::size_t>(events[i].token.n_decoded), i + 1);
  }
  CHECK_EQ(stream.received(), as_chunk("1\n"));
  decoder.join();
}

TEST(a_relay_that_retires_leaves_what_was_not_sent) {
  Attached stream;
  stream.relay.retire();
  stream.decode(1);
  REQUIRE(stream.wakes_the_event_loop(20'000));
  std::vector<TokenEvent> events;
  stream.relay.drain(events);
  CHECK_EQ(stream.frames->take_chunk(), as_chunk("1\n"));
  CHECK(!stream.relay.attach(0, stream.pair[0]));
}

}  // namespace
}  // namespace event_relay_test
