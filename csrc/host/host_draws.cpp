// HostStepper's draws: from rows of logits to logprobs and to a slot's next token, under its
// grammar if it has one.
#include <algorithm>
#include <stdexcept>

#include "host/host_stepper.h"
#include "host/token_outcome.h"

namespace unpaced {

void HostStepper::sample(Slot& slot, EventPublisher& events) {
  const Share share = share_of(slot);
  const float* logits = share.logits != nullptr
                            ? share.logits
                            : llama_get_logits_ith(model_->context(), share.first + share.n - 1);
  if (logits == nullptr) throw std::runtime_error("llama_decode gave no logits");
  TokenMask* mask = slot.spec->mask.get();
  OpenDraw& draw = draw_of(slot);
  draw.first = first_draw(sampler(slot), logits, mask, slot.spec->reasoning_budget.get());
  if (draw.first.token < 0) {
    end_without_token(slot, FinishReason::kNonFinite, events);
    return;
  }
  draw.logits = logits;
  std::optional<TokenMask::Verdict> verdict = TokenMask::Verdict::kAllowed;
  // Asked at once, so that the grammars of several slots work at the same time. Probabilities after
  // the chain are an exception: they hang on llama.cpp's row, and a copy of it does not help.
  const std::chrono::nanoseconds limit =
      slot.spec->post_sampling_probs ? std::chrono::hours(1) : std::chrono::hours(0);
  if (draw.first.is_masked) verdict = mask->check_within(draw.first.token, limit);
  draw.is_open = draw.is_new = true;
  if (verdict) decide(slot, *verdict, events);
}

void HostStepper::decide_draws(std::span<Slot> slots, std::chrono::nanoseconds limit,
                               EventPublisher& events) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  auto n_left = std::count_if(draws_.begin(), draws_.end(),
                              [](const OpenDraw& d) { return d.is_open && d.is_new; });
  for (Slot& slot : slots) {
    OpenDraw& draw = draw_of(slot);
    if (!draw.is_open) continue;
    std::chrono::nanoseconds wait{0};
    if (draw.is_new) wait = std::max(wait, (deadline - Clock::now()) / n_left--);
    if (slot.phase != SlotPhase::kDecode) {  // its request was ended from outside
      draw.is_open = false;
    } else if (const auto verdict = slot.spec->mask->check_within(draw.first.token, wait)) {
      decide(slot, *verdict, events);
    }
  }
}

void HostStepper::keep_rows() noexcept {
  const auto n_vocab = static_cast<std::size_t>(model_->n_vocab());
  for (OpenDraw& draw : draws_) {
    if (!draw.is_open) continue;
    draw.is_new = false;
    if (draw.logits == draw.row.get()) continue;
    std::copy_n(draw.logits, n_vocab, draw.row.get());
    draw.logits = draw.row.get();
  }
}

void HostStepper::decide(Slot& slot, TokenMask::Verdict verdict, EventPublisher& events) {
  OpenDraw& draw = draw_of(slot);
  draw.is_open = false;
  RequestSpec& spec = *slot.spec;
  const MaskedDraw result = second_draw(
      sampler(slot), draw.logits, spec.mask.get(), spec.reasoning_budget.get(), draw.first, verdict,
      model_->n_vocab(), [this](TokenId token) { return model_->is_eog(token); });
  if (result.failure != FinishReason::kNone) {
    end_without_token(slot, result.failure, events);
  } else {
    publish(slot, result.token, draw.logits, events);
  }
}

void HostStepper::end_without_token(Slot& slot, FinishReason reason, EventPublisher& events) {
  if (reason == FinishReason::kNonFinite) {
    forget(slot);
    taint();
  }
  events.finished(slot, reason);
}

void HostStepper::publish(Slot& slot, TokenId token, const float* logits, EventPublisher& events) {
  sampler(slot).accept(token);
  float logprob = 0.0F;
  if (slot.spec->n_probs > 0 || slot.spec->want_logprob) {
    logprob = publish_logprobs(slot, token, logits, events);
  }
  const FinishReason reason = judge_token(slot, token, *model_);
  publish_token(slot, token, logprob, reason, counters_, events);
}

void HostStepper::collect_prompt_logprobs(Slot& slot, EventPublisher& events) {
  const Share share = share_of(slot);
  const auto n_prompt = static_cast<std::int32_t>(slot.spec->prompt.size());
  for (std::int32_t i = 0; i < share.n; ++i) {
    const std::int32_t next = slot.n_cells() + i + 1;  // the prompt token this row predicts
    if (next >= n_prompt) break;
    if (next <= prefill_of(slot).n_told) continue;  // computed anew
    const float* logits = llama_get_logits_ith(model_->context(), share.first + i);
    const TokenId token = slot.spec->prompt[static_cast<std::size_t>(next)];
    const auto best = top_logprobs_.compute(logits, slot.spec->n_probs);
    events.logprobs(slot, best.data(), static_cast<std::int32_t>(best.size()));
    events.prompt_logprob(slot, token, next, top_logprobs_.logprob(token));
  }
}

float HostStepper::publish_logprobs(Slot& slot, TokenId token, const float* logits,
                                    EventPublisher& events) {
  const RequestSpec& spec = *slot.spec;
  if (!spec.post_sampling_probs) {
    const auto best = top_logprobs_.compute(logits, spec.n_probs);
    events.logprobs(slot, best.data(), static_cast<std::int32_t>(best.size()));
    return top_logprobs_.logprob(token);
  }
  const auto candidates = samplers_[static_cast<std::size_t>(slot.id)]->candidates();
  float probability = 0.0F;
  std::int32_t n = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.token == token) probability = candidate.p;
    if (n < spec.n_probs && candidate.p > 0.0F) {
      pairs_[static_cast<std::size_t>(n++)] = {.token = candidate.token, .logprob = candidate.p};
    }
  }
  events.logprobs(slot, pairs_.data(), n);
  return probability;
}

}  // namespace unpaced
