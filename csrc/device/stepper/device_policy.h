// Whether the GPU may make the next steps, and why not.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "decode/counters.h"
#include "decode/host_reason.h"
#include "host/host_stepper.h"
#include "slots/slot.h"

namespace unpaced {

// Decode thread only.
class DevicePolicy {
 public:
  // `host` and `counters` outlive this.
  DevicePolicy(HostStepper& host, Counters& counters, std::int32_t n_slots)
      : host_(host), counters_(counters), counted_(static_cast<std::size_t>(n_slots)) {}

  // kNone: the GPU can make the steps of these slots, which are all that are active; none: there
  // are others, or too many.
  [[nodiscard]] HostReason why_host(std::span<Slot* const> members) const;

  // Sequences of more cells are not decoded with others.
  void limit_company(std::int32_t n_cells) noexcept { n_company_cells_ = n_cells; }

  // The GPU could not be given the request's steps; the host makes the other ones.
  void ground(const RequestSpec& spec) noexcept { grounded_ = spec.id; }

  // Counts the requests that the host decodes for this reason, each once.
  void count(std::span<const Slot> slots, HostReason reason) noexcept;

 private:
  [[nodiscard]] HostReason why_host(const Slot& slot) const;

  HostStepper& host_;
  Counters& counters_;
  std::vector<RequestId> counted_;  // by slot id: the last request that was counted
  RequestId grounded_ = 0;          // 0: none
  std::int32_t n_company_cells_ = std::numeric_limits<std::int32_t>::max();
};

}  // namespace unpaced
