#include "host/prefill_policy.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace unpaced {
namespace {

// Before any step with a prompt has been seen.
constexpr std::int32_t kFirst = 8;
// Where the target leaves next to nothing, as a step takes as long without a prompt, a prompt
// nonetheless gets this part of the time that the slots which decode take.
constexpr double kLeastPart = 0.25;

}  // namespace

void PrefillPolicy::begin(std::int32_t slot, std::int32_t n_left) noexcept {
  due_[static_cast<std::size_t>(slot)] = n_computed_ + static_cast<std::uint64_t>(n_left);
}

PromptShare PrefillPolicy::next_alone(std::span<const PromptShare> prompts) noexcept {
  const auto overtaken = std::ranges::min_element(
      prompts, {}, [this](const PromptShare& prompt) { return std::pair(due(prompt), prompt.id); });
  was_overtaken_ = due(*overtaken) <= n_computed_ && !was_overtaken_;
  if (was_overtaken_) return *overtaken;
  return *std::ranges::min_element(prompts, {}, [this](const PromptShare& prompt) {
    return std::tuple(prompt.n_left, due(prompt), prompt.id);
  });
}

void PrefillPolicy::plan(std::span<PromptShare> prompts, std::int32_t n_decoding) const noexcept {
  if (prompts.empty()) return;
  std::ranges::sort(prompts, {}, [this](const PromptShare& prompt) {
    return std::tuple(prompt.n_left, due(prompt), prompt.id);
  });
  std::int32_t n_left = n_room(n_decoding);
  for (PromptShare& prompt : prompts) prompt.n = 0;
  const auto first = std::ranges::min_element(
      prompts, {}, [this](const PromptShare& prompt) { return std::pair(due(prompt), prompt.id); });
  if (due(*first) <= n_computed_) first->n = std::min(first->n_left, (n_left + 1) / 2);
  n_left -= first->n;
  for (PromptShare& prompt : prompts) {
    const std::int32_t n = std::min(prompt.n_left - prompt.n, n_left);
    prompt.n += n;
    n_left -= n;
  }
}

void PrefillPolicy::observe(std::int32_t n_decoding, std::int32_t n_prompt,
                            std::int64_t us) noexcept {
  n_computed_ += static_cast<std::uint64_t>(n_prompt);
  cost_.observe(n_decoding, n_prompt, us);
}

std::int32_t PrefillPolicy::n_room(std::int32_t n_decoding) const noexcept {
  const std::int32_t n = limits_.n_chunk - n_decoding;
  return n_decoding > 0 ? std::min(n, n_beside(n_decoding)) : n;
}

double PrefillPolicy::steps_us(Us us_of, std::int32_t n, std::int32_t n_decoding) const noexcept {
  const std::int32_t n_step = std::max(1, n_room(n_decoding));
  const std::int32_t n_rest = n % n_step;
  const std::int32_t n_full = n / n_step;
  double us = n_full * (cost_.*us_of)(n_step, n_decoding);
  if (n_rest > 0) us += (cost_.*us_of)(n_rest, n_decoding);
  if (n_decoding > 0) us += (n_full + (n_rest > 0)) * cost_.decode_us(n_decoding);
  return us;
}

double PrefillPolicy::prompt_us(std::int32_t n, std::int32_t n_rest,
                                std::int32_t n_decoding) const noexcept {
  if (cost_.most_us(1, n_decoding) <= 0) return 0;
  return steps_us(&StepCost::most_us, n, n_decoding) -
         steps_us(&StepCost::least_us, n_rest, n_decoding);
}

double PrefillPolicy::step_us(std::int32_t n_decoding, std::int32_t n_waiting) const noexcept {
  const std::int32_t n = std::min(n_waiting, std::max(1, n_room(n_decoding)));
  return (n_decoding > 0 ? cost_.decode_us(n_decoding) : 0) +
         (n > 0 ? cost_.least_us(n, n_decoding) : 0);
}

std::int32_t PrefillPolicy::n_beside(std::int32_t n_decoding) const noexcept {
  std::int32_t n = limits_.n_chunk;
  if (limits_.n_beside > 0) n = std::min(n, limits_.n_beside);
  if (limits_.max_itl_us > 0) n = std::min(n, n_within_target(n_decoding));
  return std::max(1, n);
}

std::int32_t PrefillPolicy::n_within_target(std::int32_t n_decoding) const noexcept {
  const double token_us = cost_.prompt_token_us();
  if (token_us <= 0) return kFirst;
  const double decode_us = cost_.decode_us(n_decoding);
  const double least_us = kLeastPart * decode_us;
  const double us = std::max(least_us, static_cast<double>(limits_.max_itl_us) - decode_us);
  return static_cast<std::int32_t>(std::min<double>(limits_.n_chunk, std::floor(us / token_us)));
}

}  // namespace unpaced
