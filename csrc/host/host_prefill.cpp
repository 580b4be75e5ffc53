// How much of whose prompt HostStepper's step computes, and what it learns from the step.
#include <algorithm>

#include "host/host_stepper.h"
#include "request/prompt_logprob_rows.h"

namespace unpaced {

void HostStepper::plan_prefill(std::span<const Slot> slots) noexcept {
  prompts_.clear();
  n_streams_ = n_decoded_ = n_prefilled_ = 0;
  for (const Slot& slot : slots) {
    if (slot.phase == SlotPhase::kDecode) {
      ++n_streams_;
    } else if (may_go(slot)) {
      const auto n_known = static_cast<std::int32_t>(known_tokens(slot).size());
      prompts_.push_back(
          {.slot = slot.id, .id = slot.spec->id, .n_left = n_known - slot.n_cells()});
    }
  }
  if (deterministic_) return plan_chunk(slots);
  prefill_.plan(prompts_, n_streams_);
  // Who has how much is decided, all of it has room, and add_by_stream() goes by slot.
  if (!kv_unified_) std::ranges::sort(prompts_, {}, &PromptShare::slot);
}

void HostStepper::plan_chunk(std::span<const Slot> slots) noexcept {
  if (prompts_.empty()) return;
  PromptShare prompt = prefill_.next_alone(prompts_);
  const Slot& slot = slots[static_cast<std::size_t>(prompt.slot)];
  prompt.n = std::min(prompt.n_left, n_chunk_ - slot.n_cells() % n_chunk_);
  prompts_.clear();
  prompts_.push_back(prompt);
}

void HostStepper::add_by_stream(std::span<Slot> slots, const Slot& leader) noexcept {
  auto prompt = prompts_.cbegin();
  for (Slot& slot : slots) {
    while (prompt != prompts_.cend() && prompt->slot < slot.id) ++prompt;
    if (!is_beside(slot, leader)) continue;
    if (slot.phase == SlotPhase::kDecode) {
      if (may_go(slot)) add_decode(slot);
    } else if (prompt != prompts_.cend() && prompt->slot == slot.id) {
      add_prefill(slot, prompt->n);
    }
  }
}

void HostStepper::add_prefill(Slot& slot, std::int32_t n_planned) noexcept {
  const RequestSpec& spec = *slot.spec;
  const std::vector<TokenId>& tokens = known_tokens(slot);
  const bool is_prompt = slot.phase == SlotPhase::kPrefill;
  const auto n_known = static_cast<std::int32_t>(tokens.size());
  const std::int32_t begin = slot.n_cells();
  std::int32_t n = std::min(n_planned, batch_.room());
  const bool wants_all = is_prompt && spec.prompt_logprobs;
  if (wants_all) {
    // Rows of logits are budgeted by the batch, not by the slot: one such prompt at a time.
    std::int32_t n_rows_left = kPromptLogprobRows;
    for (const Share& share : shares_) n_rows_left -= share.n > 1 ? share.n : 0;
    n = std::min(n, n_rows_left);
  }
  if (n <= 0) return;
  share_of(slot) = {.first = batch_.size(), .n = n};
  n_prefilled_ += n;
  for (std::int32_t i = begin; i < begin + n; ++i) {
    const bool is_last = is_prompt && i + 1 == n_known;
    batch_.add(tokens[static_cast<std::size_t>(i)], i, slot.sequence, wants_all || is_last);
  }
}

void HostStepper::observe_step(std::int64_t begin_us) noexcept {
  prefill_.observe(n_decoded_, n_prefilled_, steady_us() - begin_us);
  const StepCost& cost = prefill_.cost();
  counters_.step_decode_us.set(static_cast<std::uint64_t>(cost.decode_us(std::max(1, n_streams_))));
  counters_.step_prompt_token_ns.set(static_cast<std::uint64_t>(1e3 * cost.prompt_token_us()));
  counters_.prompt_alone_ns.set(static_cast<std::uint64_t>(1e3 * cost.alone().each_us()));
  counters_.n_steps_observed.set(cost.n_seen());
  if (n_streams_ == 0) return;
  counters_.prefill_budget.set(static_cast<std::uint64_t>(prefill_.n_beside(n_streams_)));
  if (n_prefilled_ == 0) return;
  const auto n = static_cast<std::uint64_t>(n_prefilled_);
  counters_.n_steps_beside.add(1);
  counters_.n_tokens_beside.add(n);
  counters_.n_tokens_beside_max.set(std::max(counters_.n_tokens_beside_max.get(), n));
}

}  // namespace unpaced
