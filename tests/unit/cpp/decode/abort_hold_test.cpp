// An abort within ggml on the decode thread, as after a CUDA error: the front end hears of it, and
// has time to tell the clients before the process ends.
#include <ggml.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "check.h"
#include "front_end.h"
#include "log/log_sink.h"
#include "scripted_stepper.h"

namespace {

using unpaced::EngineState;
using unpaced::EventKind;
using unpaced::RequestId;
using unpaced::Slot;
using unpaced::test::factory_of;
using unpaced::test::FrontEnd;
using unpaced::test::prompt_of;
using unpaced::test::Script;

constexpr const char* kIsChild = "UNPACED_ABORT_CHILD";
constexpr int kEnded = 70;

// Ends the process, whatever happens.
[[noreturn]] void abort_in_a_step() {
  unpaced::install_log_sink(unpaced::LogLevel::kError);
  Script script;
  script.before_token = [](const Slot& slot) {
    if (slot.n_decoded == 2) ggml_abort("somewhere.cu", 7, "%s", "CUDA error");
  };
  FrontEnd front({});
  front.start(factory_of(script));
  const RequestId id = front.submit(prompt_of(4), 50);
  REQUIRE(front.run_until([&] { return front.thread().state() == EngineState::kFailed; }));
  REQUIRE(front.count(id, EventKind::kToken) == 2);
  REQUIRE(front.thread().error() == "somewhere.cu:7: CUDA error");
  REQUIRE(front.submit(prompt_of(4), 5) == 0);
  REQUIRE(!front.thread().stop_within(std::chrono::milliseconds(10)));
  REQUIRE(front.thread().abandon("it aborts"));
  REQUIRE(front.thread().error() == "somewhere.cu:7: CUDA error");
  ::_exit(kEnded);
}

TEST(an_abort_waits_for_the_front_end) {
  if (std::getenv(kIsChild) != nullptr) abort_in_a_step();
  // A process of its own, without this one's threads.
  REQUIRE(::setenv(kIsChild, "1", 1) == 0);
  char path[] = "/proc/self/exe";
  char* arguments[] = {path, nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, path, nullptr, nullptr, arguments, environ) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), kEnded);
}

}  // namespace

CHECK_MAIN()
