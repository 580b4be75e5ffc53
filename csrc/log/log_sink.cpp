#include "log/log_sink.h"

#include <llama.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <utility>

#include "log/log_writer.h"

namespace unpaced {
namespace {

std::atomic<int> min_level{static_cast<int>(LogLevel::kWarn)};
std::atomic<int> log_file{-1};

// A failed load logs a handful of lines; the bound only guards against a runaway.
constexpr std::size_t kMaxErrorBytes = 4096;
thread_local bool capturing = false;
thread_local std::string captured;

constexpr std::size_t kMaxWarningBytes = 4096;
thread_local bool holding = false;
thread_local std::string held;

// Never destroyed: their threads may be at work when the process ends.
LogWriter& writer_of(LogTarget target) noexcept {
  static LogWriter* const writers[] = {new LogWriter(STDERR_FILENO), new LogWriter(STDOUT_FILENO),
                                       new LogWriter(-1)};
  return *writers[static_cast<int>(target)];
}

// How long a process that ends waits for whoever should read its last words.
constexpr int kLastWordsMs = 1000;

constexpr LogTarget kTargets[] = {LogTarget::kStderr, LogTarget::kStdout, LogTarget::kFile};

void write_lines(std::string_view text) noexcept {
  writer_of(LogTarget::kStderr).write(text);
  writer_of(LogTarget::kFile).write(text);
}

LogLevel from_ggml(ggml_log_level level) noexcept {
  switch (level) {
    case GGML_LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case GGML_LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case GGML_LOG_LEVEL_WARN:
      return LogLevel::kWarn;
    case GGML_LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kNone;
  }
}

// The first line is the cause, those after it say what therefore failed. In front of it stand the
// names of functions: "llama_model_load: error loading model: ".
std::string cause_of(std::string_view lines) {
  std::string_view cause = lines.substr(0, lines.find('\n'));
  for (std::size_t colon = cause.find(": "); colon != std::string_view::npos;
       colon = cause.find(": ")) {
    const std::string_view word = cause.substr(0, colon);
    const bool is_name = word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_:") ==
                             std::string_view::npos &&
                         word.find('_') != std::string_view::npos;
    if (!is_name && word != "error loading model") break;
    cause.remove_prefix(colon + 2);
  }
  return std::string(cause);
}

void on_log(ggml_log_level level, const char* text, void* /*user*/) {
  // CONT continues a line whose level came before, on the same thread.
  thread_local LogLevel line_level = LogLevel::kNone;
  if (level != GGML_LOG_LEVEL_CONT) line_level = from_ggml(level);
  if (line_level == LogLevel::kError && capturing) {
    if (captured.size() < kMaxErrorBytes) captured += text;
    return;
  }
  // relaxed: a filter, orders nothing.
  if (static_cast<int>(line_level) < min_level.load(std::memory_order_relaxed)) return;
  if (line_level == LogLevel::kWarn && holding) {
    if (held.size() < kMaxWarningBytes) held += text;
    return;
  }
  write_lines(text);
}

// Whether the log is a debug log: what llama.cpp says at "info" is for nobody else
// (engine_ext/base/native_log.py).
bool debugs() noexcept {
  // relaxed: a filter, orders nothing.
  return min_level.load(std::memory_order_relaxed) <= static_cast<int>(LogLevel::kInfo);
}

}  // namespace

void write_last_words(std::string_view text) noexcept {
  write_text(STDERR_FILENO, text, kLastWordsMs);
  // relaxed: set before there is anything to say.
  write_text(log_file.load(std::memory_order_relaxed), text, kLastWordsMs);
}

void install_log_sink(LogLevel level) {
  min_level.store(static_cast<int>(level), std::memory_order_relaxed);
  llama_log_set(on_log, nullptr);
}

void log_warning(const std::string& line) {
  ggml_log_callback log = nullptr;
  void* user = nullptr;
  llama_log_get(&log, &user);
  if (log != nullptr) log(GGML_LOG_LEVEL_WARN, (line + "\n").c_str(), user);
}

void queue_log(std::size_t max_bytes) {
  for (const LogTarget target : kTargets) writer_of(target).queue(max_bytes);
}

void set_log_file(int file) noexcept {
  writer_of(LogTarget::kFile).replace(file);
  log_file.store(file, std::memory_order_relaxed);
}

std::int64_t write_log(LogTarget target, std::string_view text) noexcept {
  return writer_of(target).write(text);
}

std::uint64_t count_dropped_log() noexcept {
  std::uint64_t n = 0;
  for (const LogTarget target : kTargets) n += writer_of(target).n_dropped();
  return n;
}

bool flush_log(std::chrono::milliseconds limit) noexcept {
  bool is_written = true;
  for (const LogTarget target : kTargets) is_written &= writer_of(target).flush(limit);
  return is_written;
}

ErrorCapture::ErrorCapture() noexcept {
  captured.clear();
  capturing = true;
}

ErrorCapture::~ErrorCapture() { capturing = false; }

std::string ErrorCapture::take_all() { return std::exchange(captured, {}); }

std::string ErrorCapture::take() {
  const std::string lines = take_all();
  if (debugs()) write_lines(lines);
  return cause_of(lines);
}

HeldWarnings::HeldWarnings() noexcept { holding = true; }

HeldWarnings::~HeldWarnings() {
  holding = false;
  if (!held.empty()) write_lines(held);
  held.clear();
}

void HeldWarnings::drop() const noexcept {
  if (debugs()) write_lines(held);
  held.clear();
}

}  // namespace unpaced
