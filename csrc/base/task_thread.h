// One thread with a stack large enough for what recurses on input: tokenising, detokenising,
// grammar compiling. Some of llama.cpp's pre-tokenisers take about 330 bytes of stack a character
// (std::regex) and would overflow an ordinary stack.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>

namespace unpaced {

class TaskThread {
 public:
  // The stack is reserved, not committed: only pages that are touched take memory.
  static constexpr std::size_t kStackBytes = 512UL << 20U;

  // Throws std::system_error if the thread cannot be made. `niceness`: 0 to 19.
  explicit TaskThread(int niceness = 0);
  ~TaskThread();  // joins
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Any thread but this one. Runs `task` there and waits for it; rethrows what it throws. Callers
  // take turns.
  void run(const std::function<void()>& task);

 private:
  static void* main(void* self);
  void loop();

  const int niceness_;
  std::mutex callers_;  // held by the caller whose task is running
  std::mutex mutex_;    // guards what follows
  std::condition_variable changed_;
  const std::function<void()>* task_ = nullptr;
  std::exception_ptr failure_;
  bool done_ = false;
  bool stop_ = false;
  pthread_t thread_{};
};

}  // namespace unpaced
