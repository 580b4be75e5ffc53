// The measured side of bench_ring.py: a C library over the ring and the wake-up that the engine
// uses.
#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/cpu_affinity.h"
#include "base/spsc_ring.h"
#include "base/wakeup.h"
#include "request/records.h"

namespace {

using unpaced::SpscRing;
using unpaced::TokenEvent;
using unpaced::Wakeup;

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pin(std::int32_t core) noexcept {
  if (core >= 0) unpaced::pin_calling_thread({&core, 1});
}

// Every byte that identifies the record follows from its number.
TokenEvent event_of(std::uint64_t number) noexcept {
  TokenEvent event{};
  event.request_id = number;
  event.t_us = static_cast<std::int64_t>(~number);
  event.sequence_number = static_cast<std::uint32_t>(number);
  event.kind = unpaced::EventKind::kToken;
  event.token = {.token = static_cast<std::int32_t>(number & 0x7FFFFFFF),
                 .logprob = 0.0F,
                 .n_decoded = static_cast<std::int32_t>(number & 0x7FFFFFFF)};
  return event;
}

bool is_event(const TokenEvent& event, std::uint64_t number) noexcept {
  return event.request_id == number && event.t_us == static_cast<std::int64_t>(~number) &&
         event.sequence_number == static_cast<std::uint32_t>(number) &&
         event.token.token == static_cast<std::int32_t>(number & 0x7FFFFFFF);
}

// The reader's account of a run. Numbers are dense, so what is skipped is lost, what goes back is
// repeated or reordered.
struct Account {
  std::uint64_t expected = 0;
  std::uint64_t n_lost = 0;
  std::uint64_t n_reordered = 0;
  std::uint64_t n_torn = 0;

  void take(const TokenEvent& event) noexcept {
    if (is_event(event, expected)) {
      ++expected;
      return;
    }
    const std::uint64_t number = event.request_id;
    if (!is_event(event, number)) {
      ++n_torn;
    } else if (number > expected) {
      n_lost += number - expected;
      expected = number + 1;
    } else {
      ++n_reordered;
    }
  }
};

void write_one_by_one(SpscRing<TokenEvent>& ring, std::uint64_t n_records) noexcept {
  for (std::uint64_t i = 0; i < n_records; ++i) {
    const TokenEvent event = event_of(i);
    while (!ring.try_push(event)) {
    }
  }
}

void write_in_bursts(SpscRing<TokenEvent>& ring, std::uint64_t n_records, std::size_t burst) {
  std::vector<TokenEvent> buffer(burst);
  for (std::uint64_t next = 0; next < n_records;) {
    const std::size_t n = std::min<std::uint64_t>(burst, n_records - next);
    for (std::size_t i = 0; i < n; ++i) buffer[i] = event_of(next + i);
    for (std::size_t sent = 0; sent < n;) sent += ring.try_push_many(&buffer[sent], n - sent);
    next += n;
  }
}

// A thread that pushes bursts at a pace, as the decode thread does, and a reader elsewhere
// (asyncio).
struct PacedWriter {
  PacedWriter(std::uint64_t n_bursts, std::size_t burst, std::int64_t interval_ns,
              std::int32_t core)
      : ring(4096), thread([=, this] { run(n_bursts, burst, interval_ns, core); }) {}
  ~PacedWriter() { thread.join(); }

  void run(std::uint64_t n_bursts, std::size_t burst, std::int64_t interval_ns, std::int32_t core) {
    pin(core);
    std::uint64_t sequence_number = 0;
    std::int64_t due = now_ns();
    for (std::uint64_t i = 0; i < n_bursts; ++i) {
      due += interval_ns;
      // Sleeps most of the interval, spins the rest: awake when the burst is due, as a thread that
      // decodes is.
      std::this_thread::sleep_for(std::chrono::nanoseconds(due - now_ns() - 200'000));
      while (now_ns() < due) {
      }
      const std::int64_t pushed_ns = now_ns();
      for (std::size_t k = 0; k < burst; ++k) {
        TokenEvent event = event_of(sequence_number++);
        event.t_us = pushed_ns;
        while (!ring.try_push(event)) {
        }
      }
      wakeup.notify();
      due = std::max(due, pushed_ns);
    }
  }

  SpscRing<TokenEvent> ring;
  Wakeup wakeup;
  // Reader only.
  std::uint64_t n_read = 0;
  std::uint64_t n_out_of_order = 0;
  std::thread thread;
};

}  // namespace

extern "C" {

struct ThroughputResult {
  double seconds;
  std::uint64_t n_lost;
  std::uint64_t n_reordered;
  std::uint64_t n_torn;
};

// Writer and reader on their cores (-1: not pinned). burst 1: try_push and try_pop.
ThroughputResult bench_throughput(std::uint64_t n_records, std::uint64_t burst,
                                  std::uint64_t capacity, std::int32_t writer_core,
                                  std::int32_t reader_core) {
  SpscRing<TokenEvent> ring(capacity);
  Account account;
  const std::vector<int> cores = unpaced::allowed_cores();
  pin(reader_core);
  const std::int64_t start = now_ns();
  std::thread writer([&] {
    pin(writer_core);
    if (burst == 1) {
      write_one_by_one(ring, n_records);
    } else {
      write_in_bursts(ring, n_records, burst);
    }
  });
  // Counted by what has been taken, so that a lost record does not stop the run for good.
  std::vector<TokenEvent> buffer(burst);
  for (std::uint64_t n_taken = 0; n_taken < n_records;) {
    const std::size_t n =
        burst == 1 ? std::size_t{ring.try_pop(buffer[0])} : ring.pop_many(buffer.data(), burst);
    for (std::size_t i = 0; i < n; ++i) account.take(buffer[i]);
    n_taken += n;
  }
  const std::int64_t end = now_ns();
  writer.join();
  unpaced::pin_calling_thread(cores);
  return {.seconds = static_cast<double>(end - start) * 1e-9,
          .n_lost = account.n_lost,
          .n_reordered = account.n_reordered,
          .n_torn = account.n_torn};
}

// Nanoseconds of `n` round trips through two rings, both sides spinning, into `out`.
void bench_round_trips(std::uint64_t n, std::int32_t here, std::int32_t there, std::int64_t* out) {
  SpscRing<TokenEvent> to(64);
  SpscRing<TokenEvent> from(64);
  std::thread echo([&] {
    pin(there);
    TokenEvent event;
    for (std::uint64_t i = 0; i < n; ++i) {
      while (!to.try_pop(event)) {
      }
      while (!from.try_push(event)) {
      }
    }
  });
  const std::vector<int> cores = unpaced::allowed_cores();
  pin(here);
  TokenEvent event = event_of(0);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::int64_t start = now_ns();
    while (!to.try_push(event)) {
    }
    while (!from.try_pop(event)) {
    }
    out[i] = now_ns() - start;
  }
  echo.join();
  unpaced::pin_calling_thread(cores);
}

// What an empty interval of now_ns() costs, to judge the figures above by.
double bench_clock_ns(std::uint64_t n) {
  const std::int64_t start = now_ns();
  for (std::uint64_t i = 1; i < n; ++i) static_cast<void>(now_ns());
  return static_cast<double>(now_ns() - start) / static_cast<double>(n);
}

void* paced_writer_start(std::uint64_t n_bursts, std::uint64_t burst, std::int64_t interval_ns,
                         std::int32_t core) {
  return std::make_unique<PacedWriter>(n_bursts, burst, interval_ns, core).release();
}

int paced_writer_fd(void* writer) { return static_cast<PacedWriter*>(writer)->wakeup.fd(); }

std::uint64_t paced_writer_n_writes(void* writer) {
  return static_cast<PacedWriter*>(writer)->wakeup.n_writes();
}

std::uint64_t paced_writer_n_read(void* writer) {
  return static_cast<PacedWriter*>(writer)->n_read;
}

std::uint64_t paced_writer_n_out_of_order(void* writer) {
  return static_cast<PacedWriter*>(writer)->n_out_of_order;
}

// The asyncio reader's turn, for a callback that began at `woken_ns`: acknowledge, drain, park,
// drain again. Returns the nanoseconds from the push of the first record to the callback; -1: no
// record.
std::int64_t paced_writer_on_readable(void* handle, std::int64_t woken_ns) {
  auto& writer = *static_cast<PacedWriter*>(handle);
  writer.wakeup.acknowledge();
  std::int64_t latency = -1;
  TokenEvent event;
  const auto drain = [&] {
    std::size_t n = 0;
    for (; writer.ring.try_pop(event); ++n) {
      if (latency < 0) latency = woken_ns - event.t_us;
      writer.n_out_of_order += event.request_id != writer.n_read ? 1 : 0;
      ++writer.n_read;
    }
    return n;
  };
  do {
    drain();
    writer.wakeup.prepare_park();
  } while (drain() > 0);
  return latency;
}

void paced_writer_join(void* writer) { delete static_cast<PacedWriter*>(writer); }

}  // extern "C"
