// How the device runs a request's sampling chain.
#pragma once

#include <cstdint>
#include <span>

#include "device/state/loop_state.h"
#include "sampling/chain/sampling_params.h"

namespace unpaced {

// Penalties and DRY on the row, then the k best of it or all of it as a list, then the other links.
struct DeviceChain {
  std::span<const SamplerKind> row_links;
  std::int32_t top_k = 0;  // 0: all
  std::span<const SamplerKind> links;
  bool is_wide = false;  // the list is in global memory
  NucleusChain nucleus{};
};

// links: those of the sampler that do something. after: the probabilities of the list are wanted.
[[nodiscard]] DeviceChain plan_device_chain(const SamplingParams& params,
                                            std::span<const SamplerKind> links,
                                            std::int32_t n_vocab, bool after) noexcept;

// Not a chain with several XTC links, of which each has a random stream, nor one with typical-p on
// more candidates than a block's memory holds: it leaves them in the order of an unstable sort.
[[nodiscard]] bool can_run(const SamplingParams& params,
                           std::span<const SamplerKind> links) noexcept;

}  // namespace unpaced
