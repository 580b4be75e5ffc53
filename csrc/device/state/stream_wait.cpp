#include "device/state/stream_wait.h"

#include <string>
#include <thread>

#include "decode/engine_lost.h"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kSleep{50};

class Event {
 public:
  Event() {
    cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~Event() { cudaEventDestroy(event_); }  // waits for nothing
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) {
    cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  [[nodiscard]] bool is_passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) cuda_check(status, "cudaEventQuery");
    cudaGetLastError();  // "not ready" too: the next launch that is looked at would have it
    return status == cudaSuccess;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void await_stream(cudaStream_t stream, std::chrono::microseconds limit,
                  std::chrono::microseconds spinning) {
  Event event;
  event.record(stream);
  const Clock::time_point begin = Clock::now();
  while (!event.is_passed()) {
    const Clock::duration waited = Clock::now() - begin;
    if (limit.count() > 0 && waited > limit) {
      const auto n_ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
      throw EngineLost("the GPU has given no sign of life for " + std::to_string(n_ms) + " ms");
    }
    if (waited > spinning) std::this_thread::sleep_for(kSleep);
  }
}

}  // namespace unpaced
