#include "base/task_pool.h"

#include <system_error>
#include <utility>

#include "base/futex.h"

namespace unpaced {

void TaskPool::run(const std::function<void()>& task) {
  std::unique_ptr<TaskThread> thread = take();
  try {
    thread->run(task);
  } catch (...) {
    give_back(std::move(thread));
    throw;
  }
  give_back(std::move(thread));
}

std::unique_ptr<TaskThread> TaskPool::take() {
  std::unique_lock lock(mutex_);
  if (idle_.empty()) {
    try {
      auto made = std::make_unique<TaskThread>(niceness_);
      ++n_threads_;
      return made;
    } catch (const std::system_error&) {
      if (n_threads_ == 0) throw;
    }
    wait_until(given_back_, lock, [this] { return !idle_.empty(); });
  }
  std::unique_ptr<TaskThread> thread = std::move(idle_.back());
  idle_.pop_back();
  return thread;
}

void TaskPool::give_back(std::unique_ptr<TaskThread> thread) {
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(thread));
  }
  given_back_.notify_one();
}

}  // namespace unpaced
