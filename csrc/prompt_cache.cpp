#include "prompt_cache.h"

#include <algorithm>
#include <utility>

#include "common_prefix.h"

namespace unpaced {
namespace {

// Less of a state than this is not worth losing the rest of it for.
constexpr float kKeepAtLeast = 0.25F;

}  // namespace

PromptCache::States::iterator PromptCache::erase(States::iterator it) noexcept {
  n_bytes_ -= it->n_bytes;
  return states_.erase(it);
}

bool PromptCache::wants(std::span<const TokenId> tokens, std::size_t n_bytes,
                        std::span<const float> lora_scales) const noexcept {
  if (!enabled() || tokens.empty() || n_bytes == 0) return false;
  if (n_bytes_max_ > 0 && n_bytes > static_cast<std::size_t>(n_bytes_max_)) return false;
  for (const SlotState& state : states_) {
    if (!std::ranges::equal(state.lora_scales, lora_scales)) continue;
    if (common_prefix_length(state.tokens, tokens) == tokens.size()) return false;
  }
  return true;
}

void PromptCache::make_room(std::span<const TokenId> tokens, std::size_t n_bytes,
                            std::span<const float> lora_scales) noexcept {
  for (auto it = states_.begin(); it != states_.end();) {
    const bool is_contained = common_prefix_length(it->tokens, tokens) == it->tokens.size() &&
                              std::ranges::equal(it->lora_scales, lora_scales);
    it = is_contained ? erase(it) : std::next(it);
  }
  if (n_bytes_max_ < 0) return;
  while (!states_.empty() && n_bytes_ + n_bytes > static_cast<std::size_t>(n_bytes_max_)) {
    erase(states_.begin());
  }
}

void PromptCache::put(SlotState state) {
  const std::size_t n_bytes = state.n_bytes;
  states_.push_back(std::move(state));
  n_bytes_ += n_bytes;
}

std::optional<SlotState> PromptCache::take(std::span<const TokenId> cells,
                                           std::span<const TokenId> prompt,
                                           std::span<const float> lora_scales) noexcept {
  const auto n_prompt = static_cast<float>(prompt.size());
  const auto n_held = static_cast<float>(common_prefix_length(cells, prompt));
  // An empty slot keeps nothing: any state is better.
  float best_keep = cells.empty() ? -1.0F : n_held / static_cast<float>(cells.size());
  float best_similarity = n_held / n_prompt;
  auto best = states_.end();
  for (auto it = states_.begin(); it != states_.end(); ++it) {
    if (!std::ranges::equal(it->lora_scales, lora_scales)) continue;
    const auto n_common = static_cast<float>(common_prefix_length(it->tokens, prompt));
    const float keep = n_common / static_cast<float>(it->tokens.size());
    const float similarity = n_common / n_prompt;
    if (keep < kKeepAtLeast || keep <= best_keep || similarity <= best_similarity) continue;
    best_keep = keep;
    best_similarity = similarity;
    best = it;
  }
  if (best == states_.end()) return std::nullopt;
  std::optional<SlotState> state(std::move(*best));
  erase(best);
  return state;
}

}  // namespace unpaced
