#include "log_sink.h"

#include <ggml.h>
#include <llama.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

namespace unpaced {
namespace {

std::atomic<int> min_level{static_cast<int>(LogLevel::kWarn)};
std::atomic<int> log_file{-1};
std::atomic<DescribeAbort> describe_abort{nullptr};
std::atomic<HoldAbort> hold_abort{nullptr};
std::atomic<void*> abort_owner{nullptr};

// A failed load logs a handful of lines; the bound only guards against a runaway.
constexpr std::size_t kMaxErrorBytes = 4096;
thread_local bool capturing = false;
thread_local std::string captured;

void write_all(int file, const char* text, std::size_t n) noexcept {
  while (n > 0) {
    const ssize_t written = ::write(file, text, n);
    if (written <= 0) return;
    text += written;
    n -= static_cast<std::size_t>(written);
  }
}

void write_stderr(const char* text, std::size_t n) noexcept {
  write_all(STDERR_FILENO, text, n);
  // relaxed: set once, before there is anything to log.
  const int file = log_file.load(std::memory_order_relaxed);
  if (file >= 0) write_all(file, text, n);
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
  if (static_cast<int>(line_level) >= min_level.load(std::memory_order_relaxed)) {
    write_stderr(text, std::strlen(text));
  }
}

void on_abort(const char* message) {
  write_stderr("unpaced: fatal error in llama.cpp: ", 35);
  write_stderr(message, std::strlen(message));
  write_stderr("\n", 1);
  // acquire: pairs with set_abort_context, which stores the owner first.
  if (const DescribeAbort describe = describe_abort.load(std::memory_order_acquire)) {
    char text[1024];
    const int n = describe(abort_owner.load(std::memory_order_relaxed), text, sizeof(text));
    if (n > 0) write_stderr(text, static_cast<std::size_t>(n));
  }
  if (const HoldAbort hold = hold_abort.load(std::memory_order_acquire)) {
    hold(abort_owner.load(std::memory_order_relaxed), message);
  }
}

}  // namespace

void install_log_sink(LogLevel level, int file) {
  log_file.store(file, std::memory_order_relaxed);
  min_level.store(static_cast<int>(level), std::memory_order_relaxed);
  llama_log_set(on_log, nullptr);
  ggml_set_abort_callback(on_abort);
}

ErrorCapture::ErrorCapture() noexcept {
  captured.clear();
  capturing = true;
}

ErrorCapture::~ErrorCapture() { capturing = false; }

std::string ErrorCapture::take() {
  const std::string lines = std::exchange(captured, {});
  // relaxed: a filter, orders nothing.
  if (min_level.load(std::memory_order_relaxed) <= static_cast<int>(LogLevel::kDebug)) {
    write_stderr(lines.data(), lines.size());
  }
  return cause_of(lines);
}

void set_abort_context(const AbortContext& context, void* owner) noexcept {
  abort_owner.store(owner, std::memory_order_relaxed);
  // release: the owner above is visible to whoever sees these pointers.
  describe_abort.store(context.describe, std::memory_order_release);
  hold_abort.store(context.hold, std::memory_order_release);
}

}  // namespace unpaced
