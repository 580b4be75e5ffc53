#include "model/loop_memory.h"

#include <algorithm>

namespace unpaced {
namespace {

// Measured on an H200 with CUDA 13 (docs/bench/device.md), rounded up: what a layer's kernels take
// in a graph that can be launched.
constexpr std::size_t kDeviceBytesPerLayer = 72UL << 10U;
constexpr std::size_t kHostBytesPerLayer = 112UL << 10U;
// The step's own buffers, ggml's scratch memory, kernels, the driver's granularity; what the heap
// keeps on the host varies by 12 MiB from one start to the next.
constexpr std::size_t kDeviceBytes = 16UL << 20U;
constexpr std::size_t kHostBytes = 48UL << 20U;
// The sampler's scratch memory for a token of the vocabulary, and as much on the host.
constexpr std::size_t kBytesPerToken = 64;

}  // namespace

LoopMemory loop_memory(const LoopShape& shape) noexcept {
  const auto n_windows =
      static_cast<std::size_t>((shape.n_cells + kWindowCells - 1) / kWindowCells) *
      static_cast<std::size_t>(shape.n_streams);
  const std::size_t n_layers =
      std::min(n_windows, kMaxWindowGraphs) * static_cast<std::size_t>(shape.n_layer + 1);
  const std::size_t n_row_bytes = static_cast<std::size_t>(shape.n_vocab) * kBytesPerToken;
  return {.device = kDeviceBytes + n_layers * kDeviceBytesPerLayer + n_row_bytes,
          .host = kHostBytes + n_layers * kHostBytesPerLayer + n_row_bytes};
}

}  // namespace unpaced
