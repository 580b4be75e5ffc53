// Whether a stream has come past a point. Unlike cudaStreamQuery, which was seen to call a stream
// idle whose graph was in its WHILE node, and unlike cudaStreamSynchronize, which waits for ever.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "device/state/cuda_memory.h"

namespace unpaced {

// Decode thread only.
class StreamMarker {
 public:
  // Behind all that is in the stream now. Throws as cuda_check().
  void enqueue(cudaStream_t stream) {
    is_set_ = true;
    ++ticket_;
    // Tickets have words of their own: an old one may still wait for its copy.
    std::uint32_t* const staged = host_.data() + 1 + ticket_ % kTickets;
    *staged = ticket_;
    cuda_check(
        cudaMemcpyAsync(device_.data(), staged, sizeof *staged, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
    cuda_check(cudaMemcpyAsync(host_.data(), device_.data(), sizeof *staged, cudaMemcpyDeviceToHost,
                               stream),
               "cudaMemcpyAsync");
  }
  void clear() noexcept { is_set_ = false; }
  [[nodiscard]] bool is_set() const noexcept { return is_set_; }
  // Of the last enqueue(). After a true, what the stream wrote before it is seen.
  [[nodiscard]] bool is_passed() const noexcept {
    const bool passed = *static_cast<const volatile std::uint32_t*>(host_.data()) == ticket_;
    // acquire: pairs with the stream's order, which is that of its writes. Without it an ARM may
    // have read a mailbox entry before the ticket: news would be missed, the loop called ended.
    if (passed) std::atomic_thread_fence(std::memory_order_acquire);
    return passed;
  }

 private:
  static constexpr std::uint32_t kTickets = 16;

  PinnedArray<std::uint32_t> host_{1 + kTickets};  // the last one passed; then what is copied
  DeviceArray<std::uint32_t> device_{1};
  std::uint32_t ticket_ = 0;
  bool is_set_ = false;
};

}  // namespace unpaced
