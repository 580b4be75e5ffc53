// A block of GPU threads on one CPU thread: each is a fiber, and a barrier lets the others run.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace unpaced::test {

class Fibers {
 public:
  explicit Fibers(int n) : n_(n), contexts_(static_cast<std::size_t>(n)) {}

  // Runs body(0) … body(n - 1), each until it ends. What they share is theirs alone.
  void run(const std::function<void(int)>& body) {
    body_ = &body;
    running_ = this;
    points_.assign(static_cast<std::size_t>(n_), Point{});
    ended_.assign(static_cast<std::size_t>(n_), 0);
    stacks_.resize(static_cast<std::size_t>(n_));
    for (int i = 0; i < n_; ++i) {
      auto& context = contexts_[static_cast<std::size_t>(i)];
      auto& stack = stacks_[static_cast<std::size_t>(i)];
      if (!stack) stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
      getcontext(&context);
      context.uc_stack.ss_sp = stack.get();
      context.uc_stack.ss_size = kStackBytes;
      context.uc_link = nullptr;
      makecontext(&context, &Fibers::enter, 0);
    }
    for (bool left = true; left;) {
      left = false;
      for (current_ = 0; current_ < n_; ++current_) {
        if (ended_[static_cast<std::size_t>(current_)]) continue;
        left = true;
        enter_or_resume(static_cast<std::size_t>(current_));
      }
    }
  }

  // Lets the others run.
  void yield() {
    if (_setjmp(points_[static_cast<std::size_t>(current_)].buffer) == 0) _longjmp(loop_, 1);
  }

 private:
  static constexpr std::size_t kStackBytes = 64 * 1024;

  struct Point {
    jmp_buf buffer;
    bool begun = false;
  };

  // A context begins a fiber; afterwards jumps are enough, and make no system call.
  void enter_or_resume(std::size_t i) {
    if (_setjmp(loop_) != 0) return;
    if (points_[i].begun) _longjmp(points_[i].buffer, 1);
    points_[i].begun = true;
    setcontext(&contexts_[i]);
  }

  static void enter() {
    Fibers& self = *running_;
    const int i = self.current_;
    (*self.body_)(i);
    self.ended_[static_cast<std::size_t>(i)] = 1;
    _longjmp(self.loop_, 1);
  }

  static inline Fibers* running_ = nullptr;

  int n_;
  int current_ = 0;
  const std::function<void(int)>* body_ = nullptr;
  jmp_buf loop_ = {};
  std::vector<ucontext_t> contexts_;
  std::vector<Point> points_;
  std::vector<std::unique_ptr<std::byte[]>> stacks_;
  std::vector<char> ended_;  // looked up sooner than a bool's bit
};

// So many fibers wait for one another here, again and again.
class FiberBarrier {
 public:
  explicit FiberBarrier(int n = 0) : n_(n) {}

  void wait(Fibers& fibers) {
    const std::int64_t round = round_;
    if (++arrived_ == n_) {
      arrived_ = 0;
      ++round_;
      return;
    }
    while (round_ == round) fibers.yield();
  }

 private:
  int n_;
  int arrived_ = 0;
  std::int64_t round_ = 0;
};

}  // namespace unpaced::test
