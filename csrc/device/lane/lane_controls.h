// The control blocks of all lanes, side by side: what several lanes begin with is one copy to the
// device, whatever their number.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/state/cuda_memory.h"
#include "device/state/loop_state.h"

namespace unpaced {

// One lane's, on both sides.
struct LaneControlPlace {
  LaneControl* staged;  // pinned, the host's
  LaneControl* device;
};

// Decode thread only. Takes all its memory in the constructor.
class LaneControls {
 public:
  explicit LaneControls(std::size_t n_lanes) : staged_(n_lanes), device_(n_lanes) {}

  [[nodiscard]] LaneControlPlace place(std::size_t lane) const noexcept {
    return {.staged = staged_.data() + lane, .device = device_.data() + lane};
  }

  // Enqueues the upload of what is staged, from the first lane of the span to the last one. Those
  // between are uploaded as they were staged last: nobody may be at work in them.
  void upload(std::size_t first, std::size_t n, cudaStream_t stream) const {
    cuda_check(cudaMemcpyAsync(device_.data() + first, staged_.data() + first,
                               n * sizeof(LaneControl), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
  }

  // Enqueues the end of a pause of these lanes.
  void clear_exits(std::size_t first, std::size_t n, cudaStream_t stream) const {
    cuda_check(cudaMemset2DAsync(&device_.data()[first].exited, sizeof(LaneControl), 0,
                                 sizeof(LaneControl::exited), n, stream),
               "cudaMemset2DAsync");
  }

 private:
  PinnedArray<LaneControl> staged_;
  DeviceArray<LaneControl> device_;
};

}  // namespace unpaced
