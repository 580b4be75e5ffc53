// How much of whose prompt a step computes: decode first. No stream waits for more of others'
// prompts in a step than a budget. Of several prompts the one that has least left goes first, and
// one that was overtaken for long gets its part all the same. Decode thread only; all memory is
// taken in the constructor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/step_cost.h"
#include "request/records.h"

namespace unpaced {

struct PrefillLimits {
  std::int32_t n_chunk = 512;   // prompt tokens of a step, at most
  std::int32_t n_beside = 0;    // beside slots that decode; 0: no fewer
  std::int64_t max_itl_us = 0;  // what a step beside such slots may take; 0: no target
};

// A slot whose prompt is not all computed.
struct PromptShare {
  std::int32_t slot = 0;
  RequestId id = 0;
  std::int32_t n_left = 0;  // tokens to compute
  std::int32_t n = 0;       // of them in this step: what plan() says
};

class PrefillPolicy {
 public:
  PrefillPolicy(const PrefillLimits& limits, std::int32_t n_slots)
      : limits_(limits), cost_(n_slots), due_(static_cast<std::size_t>(n_slots), 0) {}

  // A request has begun in the slot and has so many tokens to compute.
  void begin(std::int32_t slot, std::int32_t n_left) noexcept;
  // A text that has begun computes its cells anew; it counts as overtaken.
  void resume(std::int32_t slot) noexcept { begin(slot, 0); }

  // Orders the prompts, the one with least left first, and says how many tokens of each the next
  // step computes.
  //
  // A prompt is overtaken when, since it began, as many prompt tokens have been computed, of
  // anyone, as it had. Of those that are overtaken the one that is so for longest has a right to
  // half of the step. So a short prompt never waits for a long one, and while one of R tokens waits
  // others compute R, then as much as is computed of itself and of those that were overtaken before
  // it.
  void plan(std::span<PromptShare> prompts, std::int32_t n_decoding) const noexcept;

  // Where a step computes one prompt alone: whose. The one that has least left, and of those that
  // are overtaken the one that is so for longest, take turns.
  [[nodiscard]] PromptShare next_alone(std::span<const PromptShare> prompts) noexcept;

  // The step is over and took so long. n_prompt: prompt tokens computed in it.
  void observe(std::int32_t n_decoding, std::int32_t n_prompt, std::int64_t us) noexcept;

  // Prompt tokens that a step may compute beside so many slots that decode; at least 1.
  [[nodiscard]] std::int32_t n_beside(std::int32_t n_decoding) const noexcept;
  // Microseconds by which it takes longer to compute n tokens of one prompt than to compute n_rest
  // of them, beside so many slots that decode; at most, where that is not known. 0: nothing is.
  [[nodiscard]] double prompt_us(std::int32_t n, std::int32_t n_rest,
                                 std::int32_t n_decoding) const noexcept;
  // Those of one step in which so many slots decode and so many prompt tokens wait.
  [[nodiscard]] double step_us(std::int32_t n_decoding, std::int32_t n_waiting) const noexcept;
  [[nodiscard]] const StepCost& cost() const noexcept { return cost_; }

 private:
  [[nodiscard]] std::uint64_t due(const PromptShare& prompt) const noexcept {
    return due_[static_cast<std::size_t>(prompt.slot)];
  }
  // What the steps of so many tokens take, where each has so many: Us says of StepCost.
  using Us = double (StepCost::*)(std::int32_t, std::int32_t) const noexcept;
  [[nodiscard]] double steps_us(Us us, std::int32_t n, std::int32_t n_decoding) const noexcept;
  // Prompt tokens that a step has room for.
  [[nodiscard]] std::int32_t n_room(std::int32_t n_decoding) const noexcept;
  // What the target leaves beside the slots that decode.
  [[nodiscard]] std::int32_t n_within_target(std::int32_t n_decoding) const noexcept;

  const PrefillLimits limits_;
  StepCost cost_;
  bool was_overtaken_ = false;      // the last one of next_alone()
  std::uint64_t n_computed_ = 0;    // prompt tokens, of all
  std::vector<std::uint64_t> due_;  // by slot: n_computed_ when its prompt is overtaken
};

}  // namespace unpaced
