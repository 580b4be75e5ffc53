// The decode thread's end of the token ring. Decode thread only.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/spsc_ring.h"
#include "base/wakeup.h"
#include "decode/counters.h"
#include "request/records.h"
#include "slots/slot.h"
#include "slots/slot_action.h"
#include "slots/takeover.h"

namespace unpaced {

// Microseconds of the steady clock, the time base of every TokenEvent.
[[nodiscard]] std::int64_t steady_us() noexcept;

class EventPublisher {
 public:
  // `reader` wakes the front end; `space` wakes this thread when the front end has made room in a
  // full ring; `stop` ends such a wait for good.
  EventPublisher(SpscRing<TokenEvent>& ring, Wakeup& reader, Wakeup& space,
                 const std::atomic<bool>& stop, Counters& counters) noexcept
      : ring_(ring), reader_(reader), space_(space), stop_(stop), counters_(counters) {}

  void started(Slot& slot, std::int32_t n_cached, const Takeover& takeover = {}) noexcept;
  void prefilled(Slot& slot, std::int32_t n_cached) noexcept;
  void token(Slot& slot, TokenId token, float logprob) noexcept;
  // Logprob of prompt[index], given the tokens before it.
  void prompt_logprob(Slot& slot, TokenId token, std::int32_t index, float logprob) noexcept;
  // The best alternatives of the token event that follows, at most kPairsPerEvent a record.
  void logprobs(Slot& slot, const TokenLogprob* pairs, std::int32_t n) noexcept;
  // Last event of the slot's request: the spec's loan ends and the slot is free, cells stay.
  void finished(Slot& slot, FinishReason reason, std::int32_t status = 0) noexcept;
  // Ends a request that never had a slot.
  void refused(RequestSpec* spec, FinishReason reason) noexcept;

  // Only event of a slot action: its loan ends.
  void acted(const SlotAction& action, FinishReason reason) noexcept;

  // Wakes the reader if it sleeps.
  void flush() noexcept {
    reader_.notify();
    has_news_ = false;
    urgent_ = false;
  }
  // True if something was published since the last flush().
  [[nodiscard]] bool has_news() const noexcept { return has_news_; }
  // True if something was published since the last flush() that the reader must see at once: the
  // start or the end of a request, its first token.
  [[nodiscard]] bool urgent() const noexcept { return urgent_; }

 private:
  [[nodiscard]] static TokenEvent make(Slot& slot, EventKind kind) noexcept;
  // Waits while the ring is full: back-pressure, nothing is dropped. After a stop there is no
  // reader any more and the event goes nowhere.
  void push(const TokenEvent& event) noexcept;

  SpscRing<TokenEvent>& ring_;
  Wakeup& reader_;
  Wakeup& space_;
  const std::atomic<bool>& stop_;
  Counters& counters_;
  bool has_news_ = false;
  bool urgent_ = false;
};

}  // namespace unpaced
