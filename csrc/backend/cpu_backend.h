// ggml's backends, the CPU's above all, reached through ggml's registry: a portable build has a
// library for each set of instructions, and which of them runs is known when the process starts.
#pragma once

#include <string>

struct ggml_threadpool;
struct ggml_threadpool_params;

namespace unpaced {

// llama.cpp ready for use. Registers the backends that lie beside libllama as libraries of their
// own, the CPU's best for this processor; where they are linked they are registered already. Any
// number of times, by any thread. Throws std::runtime_error where no CPU library fits.
void init_backends();

// The CPU backend's own functions. After init_backends(). No other code may call one directly: a
// portable build is not linked with a library that has them.
[[nodiscard]] ggml_threadpool* new_ggml_threadpool(ggml_threadpool_params& params);
void free_ggml_threadpool(ggml_threadpool* pool) noexcept;
using PauseThreadpool = void(ggml_threadpool* pool);
// Throws std::runtime_error where there is none.
[[nodiscard]] PauseThreadpool* find_ggml_threadpool_pause();

// Path of the libllama that this process has.
[[nodiscard]] std::string llama_library();

// File name of the CPU backend's library, "libggml-cpu-haswell.so". After init_backends().
[[nodiscard]] std::string cpu_library();

}  // namespace unpaced
