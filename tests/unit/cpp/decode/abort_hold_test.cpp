// An abort within ggml, as after a CUDA error, and an exception that nobody handles: the front end
// hears of it, and has time to tell the clients before the process ends.
#include <ggml.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "check.h"
#include "front_end.h"
#include "log/abort_handler.h"
#include "log/log_sink.h"
#include "scripted_stepper.h"

namespace {

using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::Stepper;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::prompt_of;
using unpaced::test::Script;
using Clock = std::chrono::steady_clock;

constexpr const char* kChild = "UNPACED_ABORT_CHILD";
constexpr int kTold = 70;    // the front end ends the process
constexpr int kUntold = 71;  // the thread that aborts does
constexpr const char* kMessage = "somewhere.cu:7: CUDA error";

void fail() { ggml_abort("somewhere.cu", 7, "%s", "CUDA error"); }

// As ggml's workers: whoever needs their results waits for ever.
void on_another_thread(void (*work)()) { std::thread(work).join(); }

[[noreturn]] void end_as_the_server(FrontEnd& front, std::chrono::seconds telling = {}) {
  REQUIRE(front.thread().error() == kMessage);
  REQUIRE(front.submit(prompt_of(4), 5) == 0);
  // Nobody waits for a thread that never goes on.
  REQUIRE(!front.thread().stop_within(std::chrono::hours(1)));
  REQUIRE(front.thread().abandon("it aborts"));
  REQUIRE(front.thread().error() == kMessage);
  std::this_thread::sleep_for(telling);
  ::_exit(kTold);
}

[[noreturn]] void fail_in_a_step(void (*work)(), std::chrono::seconds telling = {}) {
  Script script;
  script.before_token = [work](const Slot& slot) {
    if (slot.n_decoded == 2) work();
  };
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(4), 50);
  REQUIRE(front.run_until([&] { return front.thread().state() == EngineState::kFailed; }));
  REQUIRE(front.count(id, EventKind::kToken) == 2);
  end_as_the_server(front, telling);
}

[[noreturn]] void fail_in_the_load() {
  FrontEnd front({});
  front.start([]() -> std::unique_ptr<Stepper> {
    on_another_thread(fail);
    return nullptr;
  });
  REQUIRE(front.thread().state() == EngineState::kFailed);
  end_as_the_server(front);
}

[[noreturn]] void fail_unheard() {
  Script script;
  script.before_token = [](const Slot&) { fail(); };
  FrontEnd front({.abort_grace = std::chrono::hours(1)});
  front.start(factory_of(script));
  REQUIRE(front.submit(prompt_of(4), 5) != 0);
  std::this_thread::sleep_for(std::chrono::hours(1));
  ::_exit(kTold);
}

[[noreturn]] void fail_on_the_front_end() {
  FrontEnd front({.abort_grace = std::chrono::hours(1)});
  Script script;
  front.start(factory_of(script));
  fail();
  ::_exit(kTold);
}

// Ends the process, whatever happens.
[[noreturn]] void fail_as(std::string_view how) {
  unpaced::install_log_sink(unpaced::LogLevel::kError);
  unpaced::install_abort_handler();
  if (how == "untouched") fail_on_the_front_end();
  unpaced::set_abort_status(kUntold);
  if (how == "step") fail_in_a_step(fail);
  if (how == "slowly told") fail_in_a_step(fail, std::chrono::seconds(7));
  if (how == "worker") fail_in_a_step([] { on_another_thread(fail); });
  if (how == "workers") {
    fail_in_a_step([] {
      const std::thread first(fail);
      on_another_thread(fail);
    });
  }
  if (how == "exception") {
    fail_in_a_step([] { on_another_thread([] { throw std::runtime_error(kMessage); }); });
  }
  if (how == "load") fail_in_the_load();
  if (how == "unheard") fail_unheard();
  fail_on_the_front_end();
}

// The status of a process of its own, without this one's threads, that fails so.
int status_of(const char* how) {
  REQUIRE(::setenv(kChild, how, 1) == 0);
  char path[] = "/proc/self/exe";
  char* arguments[] = {path, nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, path, nullptr, nullptr, arguments, environ) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

void check_exit(const char* how, int expected) {
  const int status = status_of(how);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), expected);
}

TEST(an_abort_waits_for_the_front_end) { check_exit("step", kTold); }

TEST(a_front_end_that_hears_has_its_time) { check_exit("slowly told", kTold); }

TEST(an_abort_of_a_worker_does_too) { check_exit("worker", kTold); }

TEST(of_two_workers_one_ends_the_process) { check_exit("workers", kTold); }

TEST(an_exception_that_nobody_handles_does_too) { check_exit("exception", kTold); }

TEST(an_abort_while_the_model_loads_does_too) { check_exit("load", kTold); }

TEST(a_front_end_that_does_not_hear_is_not_waited_for) {
  const auto begin = Clock::now();
  check_exit("unheard", kUntold);
  CHECK(Clock::now() - begin < std::chrono::seconds(30));
}

TEST(the_front_end_does_not_wait_for_itself) {
  const auto begin = Clock::now();
  check_exit("front end", kUntold);
  CHECK(Clock::now() - begin < std::chrono::seconds(4));
}

TEST(without_a_status_it_is_sigabrt) {
  const int status = status_of("untouched");
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGABRT);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* how = std::getenv(kChild)) fail_as(how);
  return unpaced::test::run_all(argc, argv);
}
