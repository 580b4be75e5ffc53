// ggml's threads: a pool for steps, where prompts have other numbers one for prompts, and where
// there are short steps one without workers. The thread that makes them takes part in all.
#pragma once

#include <llama.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu_backend.h"
#include "model/engine_config.h"

namespace unpaced {

struct ThreadpoolDeleter {
  void operator()(ggml_threadpool* pool) const noexcept;
};

class WorkerThreads {
 public:
  WorkerThreads() = default;
  // Workers run on config.worker_cores from the start; the calling thread's cores stay as they are.
  // Unless a priority is asked for, they and the calling thread let others that wake up go first.
  // A priority above normal is for take_priority().
  // Throws std::runtime_error if no thread can be started.
  explicit WorkerThreads(const EngineConfig& config);

  // Gives the calling thread, which has to have its own cores by now, and the workers the priority
  // in real time that is asked for (ggml's numbers). A line of the log says if it may not be had.
  void take_priority() const;

  // The context has to be gone before the pools are.
  void attach(llama_context* context) const;

  // From the next llama_decode on the thread that calls it computes without workers, or with them
  // again. Nothing happens unless EngineConfig::short_steps_alone is set.
  void let_compute_alone(llama_context* context, bool alone);

  // Where there are short steps: the worker sleeps until the next step that is not, instead of
  // spinning on the front end's core for some milliseconds more.
  void rest() const noexcept;

 private:
  using Pool = std::unique_ptr<ggml_threadpool, ThreadpoolDeleter>;

  int priority_ = 0;
  std::int32_t n_threads_ = 1;
  std::int32_t n_threads_batch_ = 1;
  bool is_alone_ = false;     // the context has `alone_`
  std::vector<int> workers_;  // thread ids
  Pool steps_;
  Pool prompts_;                      // null: the same
  Pool alone_;                        // null: no step is short
  PauseThreadpool* pause_ = nullptr;  // set where there is `alone_`
};

}  // namespace unpaced
