#include "check.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace unpaced::test {
namespace {

struct Case {
  std::string file;  // without folder and ending
  const char* name;
  void (*body)();
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

bool is_chosen(const Case& test, std::string_view filter) {
  if (filter.ends_with('/')) return test.file == filter.substr(0, filter.size() - 1);
  return std::string_view(test.name).find(filter) != std::string_view::npos;
}

// relaxed throughout: only counted, and read after the threads are joined.
std::atomic<int> n_failed_checks{0};

// Ends the program when it lives longer than `limit`.
class Watchdog {
 public:
  Watchdog(const char* name, std::chrono::seconds limit)
      : thread_([this, name, limit] {
          std::unique_lock lock(mutex_);
          if (!done_changed_.wait_for(lock, limit, [this] { return done_; })) {
            std::fprintf(stderr, "%s: hung for %lld s\n", name,
                         static_cast<long long>(limit.count()));
            std::_Exit(1);
          }
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    done_changed_.notify_one();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

void report_failure(const char* file, int line, const std::string& what) {
  constexpr int kMaxPrinted = 20;
  if (n_failed_checks.fetch_add(1, std::memory_order_relaxed) < kMaxPrinted) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  }
}

void report_unequal(const char* file, int line, const char* expression, const std::string& a,
                    const std::string& b) {
  report_failure(file, line, std::string("CHECK ") + expression + ": " + a + " != " + b);
}

std::string text_of_number(long long number) { return std::to_string(number); }
std::string text_of_number(unsigned long long number) { return std::to_string(number); }
std::string text_of_number(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

Registration::Registration(const char* file, const char* name, void (*body)()) {
  cases().push_back({std::filesystem::path(file).stem().string(), name, body});
}

int run_all(int argc, char** argv) {
  constexpr std::chrono::seconds kLimit{120};
  const std::string_view filter = argc > 1 ? argv[1] : "";
  int n_run = 0;
  int n_failed = 0;
  for (const Case& test : cases()) {
    if (!is_chosen(test, filter)) continue;
    const int before = n_failed_checks.load(std::memory_order_relaxed);
    const auto start = std::chrono::steady_clock::now();
    {
      const Watchdog watchdog(test.name, kLimit);
      test.body();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const bool ok = n_failed_checks.load(std::memory_order_relaxed) == before;
    std::printf("%s %s (%.2f s)\n", ok ? "ok    " : "FAILED", test.name, took.count());
    std::fflush(stdout);
    ++n_run;
    n_failed += ok ? 0 : 1;
  }
  std::printf("%d tests, %d failed\n", n_run, n_failed);
  return n_failed == 0 && n_run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace unpaced::test
