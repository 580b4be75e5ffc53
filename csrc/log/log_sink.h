// Where log lines go: standard error, standard output, a file; llama.cpp's own without Python.
//
// `import llama_cpp` installs a Python callback as the log sink; a line from the decode thread
// would then take the GIL. install_log_sink() replaces it and must run right after that import.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace unpaced {

enum class LogLevel : int { kNone = 0, kDebug, kInfo, kWarn, kError };

enum class LogTarget : int { kStderr = 0, kStdout, kFile };

// Takes the lines of llama.cpp and ggml. Those below `min_level` are left out (one above kError:
// all); the others go to standard error and the file.
void install_log_sink(LogLevel min_level);

// A line of ours among llama.cpp's, at its level of warnings. Without a line end.
void log_warning(const std::string& line);

// For as long as the process lives: nobody who logs waits for a descriptor any more. `max_bytes` of
// lines may wait for each. Call once at most.
void queue_log(std::size_t max_bytes);

// Any thread. The file is `file` from now on, and belongs to the log; -1: none.
void set_log_file(int file) noexcept;

// Any thread; one line or several. As LogWriter::write.
std::int64_t write_log(LogTarget target, std::string_view text) noexcept;

// Texts that were dropped because too many waited, of all targets.
[[nodiscard]] std::uint64_t count_dropped_log() noexcept;

// Of a process that ends: to standard error and the file, after whatever waits where the caller has
// flushed it. Async-signal-safe.
void write_last_words(std::string_view text) noexcept;

// Whether everything has been written within `limit`, for each target.
bool flush_log(std::chrono::milliseconds limit) noexcept;

// While it lives, error lines of the calling thread are kept for take() instead of printed: what
// failed is then said once, by whoever handles it.
class ErrorCapture {
 public:
  ErrorCapture() noexcept;
  ~ErrorCapture();
  ErrorCapture(const ErrorCapture&) = delete;
  ErrorCapture& operator=(const ErrorCapture&) = delete;
  // What the lines so far say, in one sentence: the first one. All of them go to a debug log.
  [[nodiscard]] static std::string take();
  // The lines so far as they are.
  [[nodiscard]] static std::string take_all();
};

// While it lives, llama.cpp's warnings in the calling thread wait. They are told at its end, unless
// the caller has seen to what they warn of.
class HeldWarnings {
 public:
  HeldWarnings() noexcept;
  ~HeldWarnings();
  HeldWarnings(const HeldWarnings&) = delete;
  HeldWarnings& operator=(const HeldWarnings&) = delete;
  // To a debug log alone.
  void drop() const noexcept;
};

}  // namespace unpaced
