// A test framework of one page: a bare machine has none, and none comes from PyPI.
//
//   TEST(ring_is_fifo) { CHECK_EQ(a, b); CHECK(c); }     checks may run on any thread
//
// check_main.cpp is the program's main unless it has its own: [FILE/ or a part of a test's name]
// chooses. Files of tests are compiled several as one, so each has a namespace of its name.
//
// A failed CHECK prints, is counted and lets the test go on; REQUIRE leaves the program at once.
// Every test runs under a watchdog: what hangs fails, it does not block the run.
#pragma once

#include <cstdlib>
#include <string>
#include <type_traits>

#if defined(__SANITIZE_THREAD__)
inline constexpr int kSanitizerSlowdown = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSanitizerSlowdown = 4;
#else
inline constexpr int kSanitizerSlowdown = 1;
#endif

namespace unpaced::test {

void report_failure(const char* file, int line, const std::string& what);
void report_unequal(const char* file, int line, const char* expression, const std::string& a,
                    const std::string& b);
int run_all(int argc, char** argv);

struct Registration {
  Registration(const char* file, const char* name, void (*body)());
};

std::string text_of_number(long long number);
std::string text_of_number(unsigned long long number);
std::string text_of_number(double number);

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    return text_of_number(static_cast<double>(value));
  } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    return text_of_number(static_cast<long long>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return text_of_number(static_cast<unsigned long long>(value));
  } else {
    return std::string(value);
  }
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* expression, const char* file, int line) {
  if (!(a == b)) report_unequal(file, line, expression, text_of(a), text_of(b));
}

}  // namespace unpaced::test

#define TEST(name)                                                                             \
  static void test_##name();                                                                   \
  static const unpaced::test::Registration registration_##name(__FILE__, #name, &test_##name); \
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
