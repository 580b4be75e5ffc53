#include "model/worker_threads.h"

#include <ggml-cpu.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "backend/cpu_backend.h"
#include "base/cpu_affinity.h"

namespace unpaced {
namespace {

// Workers spin, also while the decode thread samples, on cores that the front end and clients on
// this machine share. So much nicer than these they let them go first, without the right that a
// higher priority would take; two threads on two cores decode as fast, and a first token comes
// in 3.2 ms instead of 5.6 (demo model). --prio asks for the contrary.
constexpr int kWorkerNiceness = 5;

void be_nice(int thread) {
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  if (errno == 0) setpriority(PRIO_PROCESS, static_cast<id_t>(thread), now + kWorkerNiceness);
}

// The pool gets no core mask: ggml gives the mask's cores to the thread that resumes a paused pool,
// too, and that is the decode thread, which has a core of its own. A pool that is not the last one
// used is paused: its workers sleep.
ggml_threadpool* new_threadpool(const EngineConfig& config, int n_threads, std::uint32_t poll,
                                bool is_paused) {
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  params.poll = poll;
  params.prio = static_cast<ggml_sched_priority>(config.options.priority);
  params.paused = is_paused;
  const std::vector<int> before = namesakes_of_calling_thread();
  ggml_threadpool* pool = new_ggml_threadpool(params);
  if (pool == nullptr) throw std::runtime_error("ggml's threads could not be started");
  std::size_t worker = 0;
  for (const int thread : namesakes_of_calling_thread()) {
    if (std::ranges::binary_search(before, thread)) continue;
    if (config.options.priority <= 0) be_nice(thread);
    if (config.worker_cores.empty()) continue;
    const auto& cores = config.worker_cores[worker++ % config.worker_cores.size()];
    if (!pin_thread(thread, cores)) {
      std::fputs("unpaced: one of ggml's threads could not be pinned\n", stderr);
    }
  }
  return pool;
}

}  // namespace

void ThreadpoolDeleter::operator()(ggml_threadpool* pool) const noexcept {
  free_ggml_threadpool(pool);
}

WorkerThreads::WorkerThreads(const EngineConfig& config)
    : steps_(new_threadpool(config, config.n_threads, config.poll, false)) {
  const std::uint32_t poll_batch = config.options.poll_batch < 0
                                       ? config.poll
                                       : static_cast<std::uint32_t>(config.options.poll_batch);
  if (config.n_threads_batch != config.n_threads || poll_batch != config.poll) {
    prompts_.reset(new_threadpool(config, config.n_threads_batch, poll_batch, true));
  }
}

void WorkerThreads::attach(llama_context* context) const {
  llama_attach_threadpool(context, steps_.get(), prompts_ ? prompts_.get() : steps_.get());
}

}  // namespace unpaced
