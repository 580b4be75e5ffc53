// What follows from a drawn token, whichever stepper drew it. Decode thread only.
#pragma once

#include "decode/counters.h"
#include "decode/event_publisher.h"
#include "model/model.h"
#include "slots/slot.h"

namespace unpaced {

// The limits of the request's text at its newest token.
[[nodiscard]] inline FinishReason judge_text(RequestSpec& spec, TokenId token,
                                             std::size_t n_stop_bytes, bool is_eog) noexcept {
  if (spec.limits.empty()) return FinishReason::kNone;
  return spec.limits.accept(token, {.n_stop_bytes = n_stop_bytes,
                                    .may_become_stop = spec.stop.may_become_stop(),
                                    .is_end = is_eog,
                                    .now_us = spec.limits.has_time_limit() ? steady_us() : 0});
}

// Whether the slot's newest token ends its request: as one of the EOG set, by a limit of the text,
// by completing a stop string, as the last one asked for, or the last one that the context can
// continue; kNone: it goes on. Once for every token, before it is published and with its
// predecessor in the slot's cells.
[[nodiscard]] inline FinishReason judge_token(Slot& slot, TokenId token,
                                              const Model& model) noexcept {
  const bool is_eog = model.is_eog(token);
  const std::size_t n_stop_bytes = slot.spec->stop.accept(token);
  const FinishReason limit = judge_text(*slot.spec, token, n_stop_bytes, is_eog);
  const std::int32_t max_tokens = slot.spec->max_tokens;
  const bool is_full = slot.n_cells() + 1 >= model.n_ctx_slot() && !model.shifts_context();
  if (is_eog) return FinishReason::kEos;
  // What the context cut off is said to be, also where a limit would have cut it off.
  if (limit != FinishReason::kNone) return is_full ? FinishReason::kContextLimit : limit;
  if (n_stop_bytes > 0) return FinishReason::kStopString;
  if (max_tokens >= 0 && slot.n_decoded + 1 >= max_tokens) return FinishReason::kTokenLimit;
  return is_full ? FinishReason::kContextLimit : FinishReason::kNone;
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
