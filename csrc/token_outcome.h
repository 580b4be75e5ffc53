// What follows from a drawn token, whichever stepper drew it. Decode thread only.
#pragma once

#include "counters.h"
#include "event_publisher.h"
#include "model.h"
#include "slot.h"

namespace unpaced {

// The token becomes the slot's next input and an event, and ends the request if it is of the EOG
// set, completes a stop string, is the last one asked for, or the last one that the context can
// continue.
inline void publish_token(Slot& slot, TokenId token, float logprob, const Model& model,
                          Counters& counters, EventPublisher& events) noexcept {
  slot.next_token = token;
  slot.n_decoded += 1;
  counters.n_tokens_decoded.add(1);
  events.token(slot, token, logprob);
  const std::int32_t max_tokens = slot.spec->max_tokens;
  const bool completes_stop = slot.spec->stop.accept(token);
  if (model.is_eog(token)) {
    events.finished(slot, FinishReason::kEos);
  } else if (completes_stop) {
    events.finished(slot, FinishReason::kStopString);
  } else if (max_tokens >= 0 && slot.n_decoded >= max_tokens) {
    events.finished(slot, FinishReason::kTokenLimit);
  } else if (slot.n_cells() + 1 >= model.n_ctx_slot() && !model.shifts_context()) {
    events.finished(slot, FinishReason::kContextLimit);
  }
}

}  // namespace unpaced
