#include "device/stepper/device_policy.h"

#include <algorithm>

#include "device/lane/device_sampler.h"
#include "grammar/token_mask.h"

namespace unpaced {

namespace {

bool has_slow_masks(const Slot& slot) noexcept {
  const TokenMask* mask = slot.spec->mask.get();
  return mask != nullptr && mask->board() != nullptr && mask->board()->is_slow();
}

}  // namespace

HostReason DevicePolicy::why_host(std::span<Slot* const> members) const {
  // A slot that waits for its grammar since it had company goes on where it is.
  const auto is_held = [this](const Slot* slot) { return host_.is_held(*slot); };
  if (members.empty() || std::ranges::any_of(members, is_held)) return HostReason::kShared;
  if (members.size() == 1) return why_host(*members.front());
  // A step under a grammar with slow masks is one launch, and the others do not wait for it.
  const auto is_hosts = [this](const Slot* slot) {
    return slot->n_cells() >= n_company_cells_ || has_slow_masks(*slot) ||
           why_host(*slot) != HostReason::kNone;
  };
  return std::ranges::any_of(members, is_hosts) ? HostReason::kShared : HostReason::kNone;
}

HostReason DevicePolicy::why_host(const Slot& slot) const {
  // The last cell is reached on the host: it ends the request or shifts the context.
  if (slot.n_cells() + 1 >= host_.n_ctx()) return HostReason::kContextEnd;
  const RequestSpec& spec = *slot.spec;
  if (spec.id == grounded_) return HostReason::kLaunch;
  if (spec.reasoning_budget != nullptr) return HostReason::kReasoning;
  if (!spec.stop.empty() && spec.pause_tokens == nullptr) return HostReason::kStopLength;
  // A line is looked at with tokens that come after it: no set of tokens to pause at tells when.
  if (!spec.limits.empty()) return HostReason::kTextLimits;
  return DeviceSampler::refusal(spec, host_.sampler(slot));
}

void DevicePolicy::count(std::span<const Slot> slots, HostReason reason) noexcept {
  if (reason == HostReason::kNone) return;
  for (const Slot& slot : slots) {
    if (slot.phase != SlotPhase::kDecode) continue;
    RequestId& counted = counted_[static_cast<std::size_t>(slot.id)];
    if (counted == slot.spec->id) continue;
    counted = slot.spec->id;
    counters_.n_requests_host[static_cast<std::size_t>(reason)].add(1);
  }
}

}  // namespace unpaced
