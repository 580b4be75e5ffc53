// TaskThreads for callers that come at the same time, one each; made when they are first needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/task_thread.h"

namespace unpaced {

class TaskPool {
 public:
  // `niceness`: of its threads, 0 to 19; what is nice leaves a busy core to others.
  explicit TaskPool(int niceness = 0) : niceness_(niceness) {}

  // Any thread but the pool's. Runs `task` on a thread of the pool and waits for it; rethrows what
  // it throws. Throws std::system_error if there is no thread and none can be made.
  void run(const std::function<void()>& task);

 private:
  [[nodiscard]] std::unique_ptr<TaskThread> take();
  void give_back(std::unique_ptr<TaskThread> thread);

  const int niceness_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable given_back_;
  std::size_t n_threads_ = 0;
  std::vector<std::unique_ptr<TaskThread>> idle_;
};

}  // namespace unpaced
