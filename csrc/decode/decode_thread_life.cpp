// Life of the decode thread: start, stop, what it does where there is nothing to do, and what is
// known of its state from outside.
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

#include "base/cpu_affinity.h"
#include "base/futex.h"
#include "base/heap_reserve.h"
#include "base/spin_pause.h"
#include "base/time_slice.h"
#include "decode/decode_thread.h"
#include "log/abort_handler.h"

namespace unpaced {
namespace {

// Many times what llama_decode was seen to need at once beside its buffers.
constexpr std::size_t kHeapBytes = 16UL << 20U;
// A front end that has not heard of an abort by then does not listen: it may itself wait for the
// thread that aborts. The server looks once a second.
constexpr std::chrono::seconds kUnheard{5};
constexpr std::chrono::milliseconds kListening{20};
// Of idling: longer than who asks for the next thing by itself takes, shorter than who reads first.
constexpr std::int64_t kQuietUs = 50'000;

// A lost stepper is not to be destroyed, at the process's end neither.
void keep_for_ever(std::unique_ptr<Stepper> stepper) {
  static auto* kept = new std::vector<Stepper*>;  // NOLINT: known to who looks for leaks
  kept->push_back(stepper.release());
}

}  // namespace

void DecodeThread::start(StepperFactory make_stepper) {
  state_.store(EngineState::kLoading, std::memory_order_release);
  front_end_ = std::this_thread::get_id();
  thread_ = std::thread([this, make = std::move(make_stepper)] { run(make); });
}

void DecodeThread::stop() noexcept {
  static_cast<void>(stop_within(std::chrono::nanoseconds::max()));
}

bool DecodeThread::stop_within(std::chrono::nanoseconds limit) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  // release: pairs with the acquire loads in loop() and EventPublisher::push().
  stop_.store(true, std::memory_order_release);
  command_wakeup_.notify();
  space_wakeup_.notify();
  if (state_.load(std::memory_order_acquire) == EngineState::kNew) return true;
  // acquire: pairs with run().
  while (ended_.load(std::memory_order_acquire) == 0) {
    if (has_aborted_.load(std::memory_order_acquire)) return false;
    const std::chrono::nanoseconds left = limit - (Clock::now() - begin);
    if (left <= std::chrono::nanoseconds::zero()) return false;
    futex_wait(ended_, 0, std::min<std::chrono::nanoseconds>(left, std::chrono::hours(1)));
  }
  const std::lock_guard lock(life_mutex_);
  if (thread_.joinable()) thread_.join();
  return true;
}

bool DecodeThread::abandon(const char* why) noexcept {
  // What the thread itself said counts for more.
  if (state() != EngineState::kFailed) record_error(why);
  // release: pairs with state() and run().
  abandoned_.store(true, std::memory_order_release);
  stop_.store(true, std::memory_order_release);
  command_wakeup_.notify();
  space_wakeup_.notify();
  const std::lock_guard lock(life_mutex_);
  if (ended_.load(std::memory_order_acquire) == 1) return false;
  if (thread_.joinable()) thread_.detach();
  return true;
}

EngineState DecodeThread::state() const noexcept {
  // acquire: what was written before the state changed (n_ctx, error) is visible.
  const bool is_over =
      abandoned_.load(std::memory_order_acquire) || has_aborted_.load(std::memory_order_acquire);
  if (is_over) return EngineState::kFailed;
  return state_.load(std::memory_order_acquire);
}

std::int64_t DecodeThread::progress() const noexcept {
  if (state() != EngineState::kReady) return -1;
  // acquire: pairs with park(). A thread that sleeps beside a command has been woken.
  if (sleeping_.load(std::memory_order_acquire) && commands_.size_approx() == 0) return -1;
  // Neither ever falls.
  return static_cast<std::int64_t>(counters_.last_step_us.get() + counters_.n_nodes.get());
}

std::int64_t DecodeThread::heartbeat_age_us() const noexcept {
  if (state() != EngineState::kReady) return 0;
  // acquire: pairs with park(), which stamps the heartbeat before it stops sleeping.
  if (sleeping_.load(std::memory_order_acquire)) return 0;
  const auto last = static_cast<std::int64_t>(counters_.last_step_us.get());
  return std::max<std::int64_t>(0, steady_us() - last);
}

std::int64_t DecodeThread::cpu_us() const noexcept {
  const clockid_t clock = cpu_clock_.load(std::memory_order_relaxed);
  timespec used{};
  // It fails for a thread that has ended.
  if (clock == kNoClock || clock_gettime(clock, &used) != 0) return 0;
  return std::int64_t{used.tv_sec} * 1'000'000 + used.tv_nsec / 1'000;
}

std::int64_t DecodeThread::gpu_test_age_us() const noexcept {
  const auto began = static_cast<std::int64_t>(counters_.gpu_test_us.get());
  if (began == 0 || state() != EngineState::kLoading) return 0;
  return std::max<std::int64_t>(0, steady_us() - began);
}

std::string DecodeThread::error() const {
  while (error_lock_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  std::string copy = error_;
  error_lock_.clear(std::memory_order_release);
  return copy;
}

void DecodeThread::record_error(const char* what) noexcept {
  while (error_lock_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  try {
    error_ = what;
  } catch (...) {
    error_.clear();  // out of memory: the finish reason still tells that it failed
  }
  error_lock_.clear(std::memory_order_release);
}

void DecodeThread::run(const StepperFactory& make_stepper) noexcept {
  set_abort_context({&DecodeThread::describe_for_abort, &DecodeThread::hold_abort}, this);
  if (clockid_t clock{}; pthread_getcpuclockid(pthread_self(), &clock) == 0) {
    cpu_clock_.store(clock, std::memory_order_relaxed);
  }
  // Inherited by the threads that the factory makes: ggml's workers.
  pthread_setname_np(pthread_self(), "ggml");
  try {
    stepper_ = make_stepper();
    stepper_->attach(nap_);
    for (Slot& slot : slots_) slot.cells.reserve(static_cast<std::size_t>(stepper_->n_ctx()) + 1);
    pthread_setname_np(pthread_self(), "decode");
    reserve_heap(kHeapBytes);
    // After the factory: threads it made must not inherit this one's single core.
    if (!options_.cores.empty() && !pin_calling_thread(options_.cores)) {
      std::fputs("unpaced: the decode thread could not be pinned\n", stderr);
    }
    counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
    n_ctx_.store(stepper_->n_ctx(), std::memory_order_release);
    state_.store(EngineState::kReady, std::memory_order_release);
    publisher_.flush();
    loop();
    // acquire: pairs with abandon().
    if (is_lost_ || abandoned_.load(std::memory_order_acquire)) {
      keep_for_ever(std::move(stepper_));
    } else {
      stepper_.reset();
      state_.store(EngineState::kStopped, std::memory_order_release);
    }
  } catch (const EngineLost& e) {
    lose(e.what());
    if (stepper_ != nullptr) keep_for_ever(std::move(stepper_));
  } catch (const std::exception& e) {
    record_error(e.what());
    stepper_.reset();
    state_.store(EngineState::kFailed, std::memory_order_release);
  } catch (...) {
    record_error("unknown exception");
    stepper_.reset();
    state_.store(EngineState::kFailed, std::memory_order_release);
  }
  publisher_.flush();
  set_abort_context({}, nullptr);
  cpu_clock_.store(kNoClock,
                   std::memory_order_relaxed);  // another thread may get this one's number
  // release: pairs with stop_within() and abandon().
  ended_.store(1, std::memory_order_release);
  futex_wake(ended_);
}

void DecodeThread::hold_abort(void* self, const char* message) {
  using Clock = std::chrono::steady_clock;
  auto* thread = static_cast<DecodeThread*>(self);
  // The front end itself: nobody else could tell the clients.
  if (std::this_thread::get_id() == thread->front_end_) return;
  thread->record_error(message);
  // release: pairs with state().
  thread->has_aborted_.store(true, std::memory_order_release);
  thread->reader_wakeup_.notify();
  const auto begin = Clock::now();
  const auto unheard = std::min<Clock::duration>(kUnheard, thread->options_.abort_grace);
  while (!thread->abandoned_.load(std::memory_order_acquire)) {
    if (Clock::now() - begin > unheard) return;
    std::this_thread::sleep_for(kListening);
  }
  std::this_thread::sleep_until(begin + thread->options_.abort_grace);
}

int DecodeThread::describe_for_abort(const void* self, char* text, int size) {
  // The aborting thread may be any of ggml's; the slots are read as they are, for a last message.
  const auto* thread = static_cast<const DecodeThread*>(self);
  int n = std::snprintf(text, static_cast<std::size_t>(size), "unpaced: at step %llu:",
                        static_cast<unsigned long long>(thread->counters_.n_steps.get()));
  for (const Slot& slot : thread->slots_) {
    const RequestSpec* spec = slot.spec;
    if (spec == nullptr || n >= size) continue;
    n += std::snprintf(text + n, static_cast<std::size_t>(size - n),
                       " [slot %d: request %llu, %d cells, %d tokens decoded]", slot.id,
                       static_cast<unsigned long long>(spec->id), slot.n_cells(), slot.n_decoded);
  }
  if (n < size) n += std::snprintf(text + n, static_cast<std::size_t>(size - n), "\n");
  return std::min(n, size - 1);
}

bool DecodeThread::await_expected() noexcept {
  // acquire: pairs with expect().
  while (steady_us() < expected_until_us_.load(std::memory_order_acquire)) {
    // acquire: pairs with stop().
    if (commands_.size_approx() > 0 || stop_.load(std::memory_order_acquire)) return true;
    spin_pause();
  }
  return false;
}

bool DecodeThread::use_rest(std::int64_t rest_us) {
  if (stepper_->use_idle_time() || keeper_.copy_early(*stepper_, slots_)) return true;
  return rest_us >= kQuietUs && stepper_->wants_quiet_time() && stepper_->use_quiet_time();
}

void DecodeThread::park() noexcept {
  if (await_expected()) return;
  bool was_used = false;
  bool waits_for_quiet = false;
  settle();
  const std::int64_t now_us = steady_us();
  if (idle_since_us_ == 0) idle_since_us_ = now_us;
  const std::int64_t rest_us = now_us - idle_since_us_;
  guard(
      [&] {
        was_used = use_rest(rest_us);
        waits_for_quiet = !was_used && rest_us < kQuietUs && stepper_->wants_quiet_time();
      },
      [this](const char* what) { record_error(what); });
  if (was_used || is_lost_) {
    counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
    return;
  }
  command_wakeup_.prepare_park();
  // acquire: pairs with stop().
  if (commands_.size_approx() > 0 || stop_.load(std::memory_order_acquire)) {
    command_wakeup_.cancel_park();
    return;
  }
  // release: pairs with heartbeat_age_us().
  sleeping_.store(true, std::memory_order_release);
  begin_at_once_after([&] {
    if (waits_for_quiet) {
      command_wakeup_.wait_for(std::chrono::microseconds(kQuietUs - rest_us));
    } else {
      command_wakeup_.wait();
    }
  });
  counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
  sleeping_.store(false, std::memory_order_release);
}

}  // namespace unpaced
