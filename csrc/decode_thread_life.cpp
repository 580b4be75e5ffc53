// Life of the decode thread: start, stop, and what is known of its state from outside.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "cpu_affinity.h"
#include "decode_thread.h"
#include "heap_reserve.h"
#include "log_sink.h"

namespace unpaced {
namespace {

// Many times what llama_decode was seen to need at once beside its buffers.
constexpr std::size_t kHeapBytes = 16UL << 20U;

}  // namespace

void DecodeThread::start(StepperFactory make_stepper) {
  state_.store(EngineState::kLoading, std::memory_order_release);
  thread_ = std::thread([this, make = std::move(make_stepper)] { run(make); });
}

void DecodeThread::stop() noexcept {
  // release: pairs with the acquire loads in loop() and EventPublisher::push().
  stop_.store(true, std::memory_order_release);
  command_wakeup_.notify();
  space_wakeup_.notify();
  if (thread_.joinable()) thread_.join();
}

EngineState DecodeThread::state() const noexcept {
  // acquire: what the thread wrote before it changed the state (n_ctx, error) is visible.
  return state_.load(std::memory_order_acquire);
}

std::int64_t DecodeThread::heartbeat_age_us() const noexcept {
  if (state() != EngineState::kReady) return 0;
  // acquire: pairs with park(), which stamps the heartbeat before it stops sleeping.
  if (sleeping_.load(std::memory_order_acquire)) return 0;
  const auto last = static_cast<std::int64_t>(counters_.last_step_us.get());
  return std::max<std::int64_t>(0, steady_us() - last);
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
  // Inherited by the threads that the factory makes: ggml's workers.
  pthread_setname_np(pthread_self(), "ggml");
  try {
    stepper_ = make_stepper();
    for (Slot& slot : slots_) slot.cells.reserve(static_cast<std::size_t>(stepper_->n_ctx()) + 1);
    pthread_setname_np(pthread_self(), "decode");
    reserve_heap(kHeapBytes);
    // After the factory: threads it made must not inherit this one's single core.
    if (!options_.cores.empty() && !pin_calling_thread(options_.cores)) {
      std::fputs("unpaced: the decode thread could not be pinned\n", stderr);
    }
    counters_.last_step_us.set(static_cast<std::uint64_t>(steady_us()));
    n_ctx_.store(stepper_->n_ctx(), std::memory_order_release);
    set_abort_context(&DecodeThread::describe_for_abort, this);
    state_.store(EngineState::kReady, std::memory_order_release);
    publisher_.flush();
    loop();
    set_abort_context(nullptr, nullptr);
    stepper_.reset();
    state_.store(EngineState::kStopped, std::memory_order_release);
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

}  // namespace unpaced
