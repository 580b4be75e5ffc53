// ggml's threads: a pool for steps and, where prompts have other numbers, one for prompts. The
// thread that makes them takes part in both.
#pragma once

#include <llama.h>

#include <memory>

#include "model/engine_config.h"

struct ggml_threadpool;

namespace unpaced {

struct ThreadpoolDeleter {
  void operator()(ggml_threadpool* pool) const noexcept;
};

class WorkerThreads {
 public:
  WorkerThreads() = default;
  // Workers run on config.worker_cores from the start; the calling thread's cores stay as they are.
  // Throws std::runtime_error if no thread can be started.
  explicit WorkerThreads(const EngineConfig& config);

  // The context has to be gone before the pools are.
  void attach(llama_context* context) const;

 private:
  using Pool = std::unique_ptr<ggml_threadpool, ThreadpoolDeleter>;

  Pool steps_;
  Pool prompts_;  // null: the same
};

}  // namespace unpaced
