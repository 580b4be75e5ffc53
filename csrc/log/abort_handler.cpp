#include "log/abort_handler.h"

#include <ggml.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>

#include "log/log_sink.h"

namespace unpaced {
namespace {

std::atomic<DescribeAbort> describe_abort{nullptr};
std::atomic<HoldAbort> hold_abort{nullptr};
std::atomic<void*> abort_owner{nullptr};
std::atomic<int> abort_status{0};
std::atomic_flag has_aborted;
std::atomic_flag has_lost_page;
thread_local bool is_aborting = false;

constexpr std::chrono::milliseconds kFlushLimit{1000};

// The first thread that aborts goes on; so does the same one again, by a fault of what follows.
void enter_abort() noexcept {
  if (has_aborted.test_and_set() && !is_aborting) {
    for (;;) ::pause();
  }
  is_aborting = true;
}

void tell(const char* kind, const char* message) {
  const std::string captured = ErrorCapture::take_all();
  flush_log(kFlushLimit);
  write_last_words(captured);
  write_last_words("unpaced: fatal error ");
  write_last_words(kind);
  write_last_words(": ");
  write_last_words(message);
  write_last_words("\n");
  // acquire: pairs with set_abort_context, which stores the owner first.
  if (const DescribeAbort describe = describe_abort.load(std::memory_order_acquire)) {
    char text[1024];
    const int n = describe(abort_owner.load(std::memory_order_relaxed), text, sizeof(text));
    if (n > 0) write_last_words({text, static_cast<std::size_t>(n)});
  }
}

// Returns where SIGABRT is to end the process.
void end_process(const char* kind, const char* message) {
  if (!is_aborting) {
    enter_abort();
    tell(kind, message);
    if (const HoldAbort hold = hold_abort.load(std::memory_order_acquire)) {
      hold(abort_owner.load(std::memory_order_relaxed), message);
    }
  }
  // relaxed: set before there is anything that could abort.
  const int status = abort_status.load(std::memory_order_relaxed);
  if (status != 0) ::_exit(status);
}

void on_abort(const char* message) { end_process("in llama.cpp", message); }

[[noreturn]] void on_terminate() {
  std::string message = "no exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    message = e.what();
  } catch (...) {
    message = "an exception of an unknown kind";
  }
  end_process("that nobody handles", message.c_str());
  std::abort();
}

// Async-signal-safe. Returning repeats the access: with the default action in place it ends the
// process, so nothing puts that in place before the sentence is out. Several threads compute on the
// same lost page at once: the others come here again and again until then.
void on_lost_page(int signal, siginfo_t* info, void* /*context*/) {
  if (has_lost_page.test_and_set()) return;
  if (info->si_code == BUS_ADRERR) {
    write_last_words(
        "unpaced: fatal: a part of a file in memory is gone: the model file was shortened or its "
        "disk failed while it was in use (SIGBUS). Replace a model by renaming another over it, or "
        "start with --no-mmap.\n");
  }
  ::signal(signal, SIG_DFL);
  if (info->si_code <= 0) ::raise(signal);  // somebody sent it: no access will repeat it
}

}  // namespace

void install_abort_handler() noexcept {
  ggml_set_abort_callback(on_abort);
  // ggml's own would start a debugger on this process and wait for it.
  std::set_terminate(on_terminate);
}

void set_abort_status(int status) noexcept {
  abort_status.store(status, std::memory_order_relaxed);
}

void set_abort_context(const AbortContext& context, void* owner) noexcept {
  abort_owner.store(owner, std::memory_order_relaxed);
  // release: the owner above is visible to whoever sees these pointers.
  describe_abort.store(context.describe, std::memory_order_release);
  hold_abort.store(context.hold, std::memory_order_release);
}

void explain_lost_pages() noexcept {
  struct sigaction action = {};
  action.sa_sigaction = on_lost_page;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace unpaced
