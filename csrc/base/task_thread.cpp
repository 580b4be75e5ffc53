#include "base/task_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <exception>
#include <system_error>
#include <utility>

#include "base/futex.h"

namespace unpaced {

TaskThread::TaskThread(int niceness) : niceness_(niceness) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = pthread_create(&thread_, &attributes, &TaskThread::main, this);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(),
                            "the tokeniser thread and its 512 MiB of stack");
  }
}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  pthread_join(thread_, nullptr);
}

void TaskThread::run(const std::function<void()>& task) {
  const std::lock_guard turn(callers_);
  std::unique_lock lock(mutex_);
  task_ = &task;
  done_ = false;
  changed_.notify_all();
  wait_until(changed_, lock, [this] { return done_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void* TaskThread::main(void* self) {
  pthread_setname_np(pthread_self(), "task");
  // Linux has it by thread, and anybody may become nicer.
  const int niceness = static_cast<TaskThread*>(self)->niceness_;
  if (niceness > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), niceness);
  static_cast<TaskThread*>(self)->loop();
  return nullptr;
}

void TaskThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wait_until(changed_, lock, [this] { return task_ != nullptr || stop_; });
    if (task_ == nullptr) return;
    const std::function<void()>* task = std::exchange(task_, nullptr);
    lock.unlock();
    std::exception_ptr failure;
    try {
      (*task)();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    done_ = true;
    changed_.notify_all();
  }
}

}  // namespace unpaced
