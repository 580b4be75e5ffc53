// One descriptor that log lines go to, and the lines that wait for it.
//
// A pipe that nobody reads and a terminal that is stopped make write(2) wait. Whoever logs must
// not: with queue() the lines are written by a thread of this class, and dropped where too many
// wait.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace unpaced {

// One for a descriptor, for as long as the process lives: its thread may be waiting for the
// descriptor when the process ends.
class LogWriter {
 public:
  explicit LogWriter(int file) noexcept : file_(file) {}
  ~LogWriter() = delete;
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // From now on write() does not wait. At most `max_bytes` of lines wait. Call once at most.
  void queue(std::size_t max_bytes);

  // Any thread. `text` is a line or several. Returns how many texts were dropped since the last
  // one that was not, or -1 if this one is.
  std::int64_t write(std::string_view text) noexcept;

  // Any thread. Later texts go to `file`, which is closed when the next one is given; -1: nowhere.
  void replace(int file) noexcept;

  // Whether everything has been written within `limit`.
  bool flush(std::chrono::milliseconds limit) noexcept;

  [[nodiscard]] std::uint64_t n_dropped() const noexcept;

 private:
  void run() noexcept;
  void take_file() noexcept;  // under the lock

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::condition_variable written_;
  std::string waiting_;
  std::string writing_;
  std::size_t max_bytes_ = 0;  // 0: write() writes
  std::uint64_t n_dropped_ = 0;
  std::int64_t n_untold_ = 0;
  int file_;
  int next_file_ = -1;
  bool is_replaced_ = false;
  bool is_writing_ = false;
  bool has_thread_ = false;
};

// Async-signal-safe. Waits for `file` up to `limit_ms` each time that it takes nothing; -1: for
// ever.
void write_text(int file, std::string_view text, int limit_ms) noexcept;

}  // namespace unpaced
