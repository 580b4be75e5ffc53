// DeviceLoop while the GPU says nothing: how it waits, and what it does when it waits too long.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>

#include "decode/engine_lost.h"
#include "device/loop/device_loop.h"

namespace unpaced {
namespace {

using Clock = StepPacer::Clock;

// No step of any model takes so long; then the stream is asked what became of it.
constexpr std::chrono::milliseconds kSuspicious{2000};
constexpr std::chrono::microseconds kShortSleep{50};

void throw_silent(Clock::duration silence) {
  const auto n_ms = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  throw EngineLost("the GPU has given no sign of life for " + std::to_string(n_ms) + " ms");
}

// An error that any kernel before caused, too.
void check_stream(cudaStream_t stream) {
  const cudaError_t status = cudaStreamQuery(stream);
  // "Not ready" too may stay as the last error, which the next launch that is looked at would have.
  cudaGetLastError();
  if (status == cudaSuccess || status == cudaErrorNotReady) return;
  throw EngineLost(std::string("the decode loop on the GPU: ") + cudaGetErrorString(status));
}

}  // namespace

DeviceLoop::Progress DeviceLoop::wait_for_news(bool may_leave) {
  const auto suspicious = stall_.count() > 0 ? std::min<Clock::duration>(kSuspicious, stall_)
                                             : Clock::duration(kSuspicious);
  for (;;) {
    const Progress now = progress();
    if (is_news(now)) {
      pacer_.arrived(Clock::now(), now.n_steps - n_taken());
      return now;
    }
    if (may_leave && interruption_ != nullptr && interruption_->is_pending()) return now;
    if (pacer_.silence() > suspicious) look_into_silence();
    if (!nap(may_leave)) pacer_.put_back();
  }
}

bool DeviceLoop::nap(bool may_leave) {
  const Clock::time_point when = pacer_.next_look();
  if (may_leave && interruption_ != nullptr) return interruption_->nap_until(when);
  std::this_thread::sleep_until(when);
  return true;
}

void DeviceLoop::look_into_silence() {
  check_stream(bridge_.stream());
  if (!marker_.is_set()) {
    marker_.enqueue(bridge_.stream());
  } else if (marker_.is_passed() && !is_news(progress())) {
    drop();
    throw std::runtime_error("the decode loop on the GPU ended without a result");
  }
  if (stall_.count() > 0 && pacer_.silence() > stall_) throw_silent(pacer_.silence());
}

void DeviceLoop::wait_for_end() {
  const Clock::time_point begin = Clock::now();
  marker_.enqueue(bridge_.stream());
  while (!marker_.is_passed()) {
    check_stream(bridge_.stream());
    const Clock::duration silence = Clock::now() - begin;
    if (stall_.count() > 0 && silence > stall_) throw_silent(silence);
    std::this_thread::sleep_for(kShortSleep);
  }
  stream_is_busy_ = false;
}

}  // namespace unpaced
