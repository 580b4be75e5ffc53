// A test framework of one page: a bare machine has none, and none comes from PyPI.
//
//   TEST(ring_is_fifo) { CHECK_EQ(a, b); CHECK(c); }     checks may run on any thread
//   CHECK_MAIN()                                          the program's main: [name part] filters
//
// A failed CHECK prints, is counted and lets the test go on; REQUIRE leaves the program at once.
// Every test runs under a watchdog: what hangs fails, it does not block the run.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__SANITIZE_THREAD__)
inline constexpr int kSanitizerSlowdown = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSanitizerSlowdown = 4;
#else
inline constexpr int kSanitizerSlowdown = 1;
#endif

namespace unpaced::test {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

// relaxed throughout: only counted, and read after the threads are joined.
inline std::atomic<int> n_failed_checks{0};

inline void report_failure(const char* file, int line, const std::string& what) {
  constexpr int kMaxPrinted = 20;
  if (n_failed_checks.fetch_add(1, std::memory_order_relaxed) < kMaxPrinted) {
    std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  }
}

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

inline int run_all(int argc, char** argv) {
  constexpr std::chrono::seconds kLimit{120};
  const std::string_view filter = argc > 1 ? argv[1] : "";
  int n_run = 0;
  int n_failed = 0;
  for (const Case& test : cases()) {
    if (std::string_view(test.name).find(filter) == std::string_view::npos) continue;
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

struct Registration {
  Registration(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <class A, class B>
void check_equal(const A& a, const B& b, const char* expression, const char* file, int line) {
  if (a == b) return;
  std::ostringstream text;
  text << "CHECK " << expression << ": " << a << " != " << b;
  report_failure(file, line, text.str());
}

}  // namespace unpaced::test

#define TEST(name)                                                                   \
  static void test_##name();                                                         \
  static const unpaced::test::Registration registration_##name(#name, &test_##name); \
  static void test_##name()

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      unpaced::test::report_failure(__FILE__, __LINE__, "CHECK " #condition); \
    }                                                                         \
  } while (false)

#define CHECK_EQ(a, b) unpaced::test::check_equal((a), (b), #a " == " #b, __FILE__, __LINE__)

#define REQUIRE(condition)                                                      \
  do {                                                                          \
    if (!(condition)) {                                                         \
      unpaced::test::report_failure(__FILE__, __LINE__, "REQUIRE " #condition); \
      std::_Exit(1);                                                            \
    }                                                                           \
  } while (false)

#define CHECK_MAIN() \
  int main(int argc, char** argv) { return unpaced::test::run_all(argc, argv); }
