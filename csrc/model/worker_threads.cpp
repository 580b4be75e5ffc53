#include "model/worker_threads.h"

#include <ggml-cpu.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/cpu_affinity.h"
#include "base/time_slice.h"
#include "log/log_sink.h"

namespace unpaced {
namespace {

// Workers spin, also while the decode thread samples, on cores that the front end and clients on
// this machine share. So much nicer than these they let them go first, without the right that a
// higher priority would take; two threads on two cores decode as fast, and a first token comes
// in 3.2 ms instead of 5.6 (demo model). --prio asks for the contrary.
constexpr int kWorkerNiceness = 5;

// The kernel's for ggml's number (llama.cpp 0c1e57098 ggml/src/ggml-cpu/ggml-cpu.c:2673).
int realtime_priority(int priority) { return priority == 1 ? 40 : priority == 2 ? 80 : 90; }

void be_nice(int thread) {
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, static_cast<id_t>(thread));
  if (errno == 0) setpriority(PRIO_PROCESS, static_cast<id_t>(thread), now + kWorkerNiceness);
}

// The pool gets no core mask: ggml gives the mask's cores to the thread that resumes a paused pool,
// too, and that is the decode thread, which has a core of its own. A pool that is not the last one
// used is paused: its workers sleep.
//
// Nor does it get a priority in real time. A thread that has one keeps its core from those that
// have the same, and ggml's wait for one another by spinning: had the decode thread one before it
// is pinned, it could begin on a worker's core and wait there for the worker, for ever.
ggml_threadpool* new_threadpool(const EngineConfig& config, int n_threads, std::uint32_t poll,
                                bool is_paused, std::vector<int>& workers) {
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  params.poll = poll;
  params.prio = static_cast<ggml_sched_priority>(std::min(config.options.priority, 0));
  params.paused = is_paused;
  const std::vector<int> before = namesakes_of_calling_thread();
  ggml_threadpool* pool = new_ggml_threadpool(params);
  if (pool == nullptr) throw std::runtime_error("ggml's threads could not be started");
  std::size_t worker = 0;
  for (const int thread : namesakes_of_calling_thread()) {
    if (std::ranges::binary_search(before, thread)) continue;
    workers.push_back(thread);
    if (config.options.priority <= 0) {
      be_nice(thread);
      let_others_preempt(thread);
    }
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
    : priority_(config.options.priority),
      n_threads_(config.n_threads),
      n_threads_batch_(config.n_threads_batch),
      steps_(new_threadpool(config, config.n_threads, config.poll, false, workers_)) {
  const std::uint32_t poll_batch = config.options.poll_batch < 0
                                       ? config.poll
                                       : static_cast<std::uint32_t>(config.options.poll_batch);
  if (config.n_threads_batch != config.n_threads || poll_batch != config.poll) {
    prompts_.reset(new_threadpool(config, config.n_threads_batch, poll_batch, true, workers_));
  }
  if (config.short_steps_alone) {
    alone_.reset(new_threadpool(config, 1, config.poll, true, workers_));
    pause_ = find_ggml_threadpool_pause();
  }
  // It computes as they do, at their side, and without being nicer than anybody.
  if (config.options.priority <= 0) let_others_preempt(0);
}

void WorkerThreads::take_priority() const {
  if (priority_ <= 0) return;
  // Threads that they make begin as any other.
  constexpr int kPolicy = SCHED_FIFO | SCHED_RESET_ON_FORK;
  const sched_param priority{.sched_priority = realtime_priority(priority_)};
  int error = sched_setscheduler(0, kPolicy, &priority) == 0 ? 0 : errno;
  for (const int worker : workers_) {
    if (sched_setscheduler(worker, kPolicy, &priority) != 0) error = errno;
  }
  if (error != 0) {
    log_warning("--prio " + std::to_string(priority_) + ": no priority in real time, " +
                std::generic_category().message(error));
  }
}

void WorkerThreads::attach(llama_context* context) const {
  llama_attach_threadpool(context, steps_.get(), prompts_ ? prompts_.get() : steps_.get());
}

void WorkerThreads::rest() const noexcept {
  if (alone_ == nullptr || is_alone_) return;
  pause_(steps_.get());
  if (prompts_) pause_(prompts_.get());  // either may be the last one used
}

void WorkerThreads::let_compute_alone(llama_context* context, bool alone) {
  if (alone_ == nullptr || alone == is_alone_) return;
  is_alone_ = alone;
  if (!alone) {
    attach(context);
    llama_set_n_threads(context, n_threads_, n_threads_batch_);
    return;
  }
  llama_attach_threadpool(context, alone_.get(), alone_.get());
  llama_set_n_threads(context, 1, 1);
}

}  // namespace unpaced
