#include "decode/event_publisher.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace unpaced {
namespace {

std::uint32_t saturated(std::int64_t us) noexcept {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(us, 0, kMost));
}

}  // namespace

std::int64_t steady_us() noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TokenEvent EventPublisher::make(Slot& slot, EventKind kind) noexcept {
  TokenEvent event{};
  event.request_id = slot.spec->id;
  event.t_us = steady_us();
  event.sequence_number = slot.next_sequence_number++;
  event.slot = static_cast<std::uint16_t>(slot.id);
  event.kind = kind;
  return event;
}

void EventPublisher::push(const TokenEvent& event) noexcept {
  has_news_ = true;
  urgent_ = urgent_ || event.kind != EventKind::kToken || event.token.n_decoded == 1;
  if (ring_.try_push(event)) return;
  counters_.n_ring_full.add(1);
  for (;;) {
    reader_.notify();
    space_.prepare_park();
    if (ring_.try_push(event)) {
      space_.cancel_park();
      return;
    }
    // acquire: pairs with DecodeThread::stop, which raises the flag and then notifies `space`.
    if (stop_.load(std::memory_order_acquire)) {
      space_.cancel_park();
      return;
    }
    space_.wait();
  }
}

void EventPublisher::started(Slot& slot, std::int32_t n_cached, const Takeover& takeover) noexcept {
  TokenEvent event = make(slot, EventKind::kStarted);
  event.prompt = {.n_prompt = static_cast<std::int32_t>(slot.spec->prompt.size()),
                  .n_cached = n_cached,
                  .n_processed = n_cached,
                  .n_idle_saved = takeover.n_idle,
                  .updated_cache = takeover.updated ? 1 : 0,
                  .copy_us = saturated(slot.waits.copy_us),
                  .n_kept_copied = takeover.n_copied,
                  .n_kept_computed = takeover.n_computed};
  push(event);
}

void EventPublisher::prefilled(Slot& slot, std::int32_t n_cached) noexcept {
  TokenEvent event = make(slot, EventKind::kPrefill);
  event.prompt = {.n_prompt = static_cast<std::int32_t>(slot.spec->prompt.size()),
                  .n_cached = n_cached,
                  .n_processed = slot.n_cells(),
                  .n_idle_saved = 0,
                  .updated_cache = 0,
                  .copy_us = 0,
                  .n_kept_copied = 0,
                  .n_kept_computed = 0};
  push(event);
}

void EventPublisher::token(Slot& slot, TokenId token, float logprob) noexcept {
  TokenEvent event = make(slot, EventKind::kToken);
  if (slot.n_decoded > 1) {
    const auto gap_us = static_cast<std::uint64_t>(event.t_us - slot.last_token_us);
    counters_.gap_us_max.set(std::max(counters_.gap_us_max.get(), gap_us));
  }
  slot.last_token_us = event.t_us;
  event.token = {.token = token,
                 .logprob = logprob,
                 .n_decoded = slot.n_decoded,
                 .n_cells = slot.n_cells(),
                 .n_shifts = slot.n_shifts};
  push(event);
}

void EventPublisher::prompt_logprob(Slot& slot, TokenId token, std::int32_t index,
                                    float logprob) noexcept {
  TokenEvent event = make(slot, EventKind::kPromptLogprob);
  event.token = {
      .token = token, .logprob = logprob, .n_decoded = index, .n_cells = 0, .n_shifts = 0};
  push(event);
}

void EventPublisher::logprobs(Slot& slot, const TokenLogprob* pairs, std::int32_t n) noexcept {
  while (n > 0) {
    TokenEvent event = make(slot, EventKind::kLogprobs);
    event.logprobs.n_pairs = std::min(n, kPairsPerEvent);
    std::copy_n(pairs, event.logprobs.n_pairs, event.logprobs.pair);
    push(event);
    pairs += event.logprobs.n_pairs;
    n -= event.logprobs.n_pairs;
  }
}

void EventPublisher::finished(Slot& slot, FinishReason reason, std::int32_t status) noexcept {
  TokenEvent event = make(slot, EventKind::kFinished);
  event.finish_reason = reason;
  const SlotWaits& waits = slot.waits;
  const std::int64_t cells_us =
      waits.cells_us + (waits.cells_since_us > 0 ? event.t_us - waits.cells_since_us : 0);
  event.finished = {.n_decoded = slot.n_decoded,
                    .n_cells = slot.n_cells(),
                    .status = status,
                    .n_shifts = slot.n_shifts,
                    .cut_line = slot.spec->limits.cut_line(),
                    .cells_us = saturated(cells_us)};
  counters_.n_requests_finished.add(1);
  if (reason == FinishReason::kCancelled) counters_.n_requests_cancelled.add(1);
  if (is_error(reason)) counters_.n_requests_failed.add(1);
  slot.spec = nullptr;
  slot.phase = SlotPhase::kIdle;
  slot.last_used_step = counters_.n_steps.get();
  push(event);
}

void EventPublisher::acted(const SlotAction& action, FinishReason reason) noexcept {
  TokenEvent event{};
  event.request_id = action.id;
  event.t_us = steady_us();
  event.slot = static_cast<std::uint16_t>(action.slot);
  event.kind = EventKind::kFinished;
  event.finish_reason = reason;
  push(event);
}

void EventPublisher::refused(RequestSpec* spec, FinishReason reason) noexcept {
  TokenEvent event{};
  event.request_id = spec->id;
  event.t_us = steady_us();
  event.kind = EventKind::kFinished;
  event.finish_reason = reason;
  event.finished = {
      .n_decoded = 0, .n_cells = 0, .status = 0, .n_shifts = 0, .cut_line = -1, .cells_us = 0};
  counters_.n_requests_finished.add(1);
  if (reason == FinishReason::kCancelled) counters_.n_requests_cancelled.add(1);
  push(event);
}

}  // namespace unpaced
