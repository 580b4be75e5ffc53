#include "device/loop/device_policy.h"

#include "device/lane/device_sampler.h"

namespace unpaced {

Slot* DevicePolicy::lone_decoder(std::span<Slot> slots) noexcept {
  Slot* lone = nullptr;
  for (Slot& slot : slots) {
    // Cells that are planned for a flight are free in the books: what is restored would take them.
    if (slot.move == SlotMove::kIn) return nullptr;
    if (!slot.active()) continue;
    if (lone != nullptr || slot.phase != SlotPhase::kDecode) return nullptr;
    lone = &slot;
  }
  return lone;
}

HostReason DevicePolicy::why_host(const Slot* lone) const {
  // A slot that waits for its grammar since it had company goes on where it is.
  if (lone == nullptr || host_.is_held(*lone)) return HostReason::kShared;
  // The last cell is reached on the host: it ends the request or shifts the context.
  if (lone->n_cells() + 1 >= host_.n_ctx()) return HostReason::kContextEnd;
  const RequestSpec& spec = *lone->spec;
  if (spec.id == grounded_) return HostReason::kLaunch;
  if (spec.reasoning_budget != nullptr) return HostReason::kReasoning;
  if (!spec.stop.empty() && spec.pause_tokens == nullptr) return HostReason::kStopLength;
  // A line is looked at with tokens that come after it: no set of tokens to pause at tells when.
  if (!spec.limits.empty()) return HostReason::kTextLimits;
  return DeviceSampler::refusal(spec, host_.sampler(*lone));
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
