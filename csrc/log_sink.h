// Where llama.cpp's and ggml's log lines go: stderr, without Python.
//
// `import llama_cpp` installs a Python callback as the log sink; a line from the decode thread
// would then take the GIL. install_log_sink() replaces it and must run right after that import.
#pragma once

#include <string>

namespace unpaced {

enum class LogLevel : int { kNone = 0, kDebug, kInfo, kWarn, kError };

// Any thread. Lines below `min_level` are dropped (one above kError: all). `file`: a descriptor
// that gets the lines too, or -1.
void install_log_sink(LogLevel min_level, int file = -1);

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
};

// What the abort handler reports besides ggml's own message. Returns the characters written into
// `text`; must be async-signal-safe.
using DescribeAbort = int (*)(const void* owner, char* text, int size);
// Called on the aborting thread after everything was said; when it returns, the process aborts.
using HoldAbort = void (*)(void* owner, const char* message);

struct AbortContext {
  DescribeAbort describe = nullptr;
  HoldAbort hold = nullptr;
};

// The engine whose state a GGML abort shall name, and who may wait with it; empty to clear. One
// engine a process.
void set_abort_context(const AbortContext& context, void* owner) noexcept;

}  // namespace unpaced
