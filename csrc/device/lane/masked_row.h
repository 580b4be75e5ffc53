// A second draw from the same row of logits, under a grammar's mask: the row as the model left it
// is kept, since the first draw writes biases and penalties into it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "device/state/cuda_memory.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class MaskedRow {
 public:
  explicit MaskedRow(std::int32_t n_vocab);

  // Where the kept row lies, for a kernel that keeps it itself.
  [[nodiscard]] float* kept() const noexcept { return row_.data(); }
  // Enqueues a copy of the row; also while the stream is captured.
  void keep(const float* logits, cudaStream_t stream) const;
  // Enqueues the kept row back into `logits`, with -inf for every token that `allowed` has no bit
  // for. The words are read before this returns.
  void restore(float* logits, std::span<const std::uint32_t> allowed, cudaStream_t stream);

 private:
  const std::int32_t n_vocab_;
  DeviceArray<float> row_;
  DeviceArray<std::uint32_t> allowed_;
  PinnedArray<std::uint32_t> staging_;
};

}  // namespace unpaced
