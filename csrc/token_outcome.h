// What follows from a drawn token, whichever stepper drew it. Decode thread only.
#pragma once

#include "counters.h"
#include "event_publisher.h"
#include "model.h"
#include "slot.h"

namespace unpaced {

// Whether the slot's newest token ends its request: as one of the EOG set, by completing a stop
// string, as the last one asked for, or the last one that the context can continue; kNone: it goes
// on. Once for every token, before it is published and with its predecessor in the slot's cells.
[[nodiscard]] inline FinishReason judge_token(Slot& slot, TokenId token,
                                              const Model& model) noexcept {
  const bool completes_stop = slot.spec->stop.accept(token);
  const std::int32_t max_tokens = slot.spec->max_tokens;
  if (model.is_eog(token)) return FinishReason::kEos;
  if (completes_stop) return FinishReason::kStopString;
  if (max_tokens >= 0 && slot.n_decoded + 1 >= max_tokens) return FinishReason::kTokenLimit;
  if (slot.n_cells() + 1 >= model.n_ctx_slot() && !model.shifts_context()) {
    return FinishReason::kContextLimit;
  }
  return FinishReason::kNone;
}

// The token becomes the slot's next input and an event, and ends the request if there is a reason.
inline void publish_token(Slot& slot, TokenId token, float logprob, FinishReason reason,
                          Counters& counters, EventPublisher& events) noexcept {
  slot.next_token = token;
  slot.n_decoded += 1;
  counters.n_tokens_decoded.add(1);
  events.token(slot, token, logprob);
  if (reason != FinishReason::kNone) events.finished(slot, reason);
}

}  // namespace unpaced
