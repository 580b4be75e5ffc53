// The tokens after which the GPU leaves its loop, so that the host can see them before the next
// step: the EOG set, and what may complete one of the request's stop strings.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "device/state/cuda_memory.h"
#include "model/model.h"
#include "request/request.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class PauseTokens {
 public:
  explicit PauseTokens(const Model& model);

  // Enqueues what this request needs, if it is not there. Nothing of the last request may run any
  // more.
  void upload(const RequestSpec& spec, cudaStream_t stream);

  // One bit a token, words of 32.
  [[nodiscard]] const std::uint32_t* device() const noexcept { return on_device_.data(); }

 private:
  DeviceArray<std::uint32_t> on_device_;
  PinnedArray<std::uint32_t> staging_;
  std::vector<std::uint32_t> end_tokens_;
  bool has_others_ = false;  // than the EOG set
};

}  // namespace unpaced
