// The end of a process in which llama.cpp gives up, an exception finds nobody, or memory goes away:
// what is said, who is waited for, and how it ends.
#pragma once

namespace unpaced {

// What is said besides the cause itself. Returns the characters written into `text`; must be
// async-signal-safe.
using DescribeAbort = int (*)(const void* owner, char* text, int size);
// Called on the aborting thread, any one, after everything was said; when it returns, the process
// ends.
using HoldAbort = void (*)(void* owner, const char* message);

struct AbortContext {
  DescribeAbort describe = nullptr;
  HoldAbort hold = nullptr;
};

// From now on an abort within ggml (GGML_ABORT, GGML_ASSERT, a CUDA error) and an exception that
// leaves a thread are told as AbortContext has it. Of several threads that abort the first ends the
// process; the others stand still.
void install_abort_handler() noexcept;

// Such an end is an exit with this status, without what runs at an ordinary exit; 0, as it is from
// the start: a SIGABRT.
void set_abort_status(int status) noexcept;

// The engine whose state an abort shall name, and who may wait with it; empty to clear. One engine
// a process.
void set_abort_context(const AbortContext& context, void* owner) noexcept;

// From now on the process says what SIGBUS means before that ends it: a model file that became
// shorter than what is mapped of it cannot be survived.
void explain_lost_pages() noexcept;

}  // namespace unpaced
