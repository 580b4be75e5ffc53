// A request's sampler while the device draws: uploaded from the host's, given back after.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "decode/event_publisher.h"
#include "decode/host_reason.h"
#include "device/lane/dry_memory.h"
#include "device/state/cuda_memory.h"
#include "device/state/loop_state.h"
#include "device/state/wide_memory.h"
#include "request/request.h"
#include "sampling/sampler.h"

namespace unpaced {

// Decode thread only. Takes all its memory in the constructor.
class DeviceSampler {
 public:
  DeviceSampler(std::int32_t n_vocab, std::int32_t n_ctx);

  // Why the host must draw this request's tokens; kNone: the device can, with the same result.
  [[nodiscard]] static HostReason refusal(const RequestSpec& spec, const Sampler& sampler) noexcept;

  // Enqueues the upload of the sampler's state. Nothing of the last request may run any more.
  void upload(const RequestSpec& spec, const Sampler& sampler, cudaStream_t stream);
  // Waits for the stream, then brings the sampler's random streams up to date. The tokens drawn
  // must have been accepted already.
  void download(Sampler& sampler, cudaStream_t stream);

  // Publishes the alternatives of a step of the launch, if the request wants any; returns what goes
  // with the token. Only after the step's mailbox entry has been seen.
  float publish_logprobs(std::int32_t step, Slot& slot, EventPublisher& events) const noexcept;

  // Those of a step, under the same condition.
  [[nodiscard]] const StepLogprobs& logprobs(std::int32_t step) const noexcept {
    return logprobs_.data()[step];
  }

  [[nodiscard]] DeviceSamplerState* device() const noexcept { return sampling_.data(); }

 private:
  const std::int32_t n_vocab_;
  WideMemory wide_;
  DryMemory dry_;
  DeviceArray<DeviceSamplerState> sampling_;
  DeviceArray<std::int32_t> count_index_;
  DeviceArray<TokenTable::Entry> count_entries_;
  DeviceArray<TokenId> history_;
  DeviceArray<LogitBias> biases_;
  PinnedArray<DeviceSamplerState> sampling_staging_;
  PinnedArray<TokenTable::Entry> count_staging_;
  PinnedArray<TokenId> history_staging_;
  PinnedArray<LogitBias> bias_staging_;
  PinnedArray<StepLogprobs> logprobs_;
};

}  // namespace unpaced
