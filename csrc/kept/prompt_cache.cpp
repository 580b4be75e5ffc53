#include "kept/prompt_cache.h"

#include <algorithm>
#include <utility>

#include "slots/common_prefix.h"

namespace unpaced {
namespace {

// Less of a state than this is not worth losing the rest of it for.
constexpr float kKeepAtLeast = 0.25F;

}  // namespace

void PromptCache::forget(const KeptState& state) noexcept {
  n_bytes_ -= state.n_bytes;
  if (state.ticket != CellStore::kNoTicket) --n_unfinished_;
}

PromptCache::States::iterator PromptCache::drop(States::iterator it) noexcept {
  forget(*it);
  const auto next = std::next(it);
  dropped_.splice(dropped_.end(), states_, it);
  return next;
}

void PromptCache::finish(KeptState& state) noexcept {
  state.ticket = CellStore::kNoTicket;
  --n_unfinished_;
}

KeptState* PromptCache::unfinished() noexcept {
  if (!has_unfinished()) return nullptr;
  const auto found = std::ranges::find_if(
      states_, [](const KeptState& state) { return state.ticket != CellStore::kNoTicket; });
  return found == states_.end() ? nullptr : &*found;
}

bool PromptCache::wants(std::span<const TokenId> tokens, std::size_t n_bytes,
                        std::span<const float> lora_scales) const noexcept {
  if (!enabled() || tokens.empty() || n_bytes == 0) return false;
  if (n_bytes_max_ > 0 && n_bytes > static_cast<std::size_t>(n_bytes_max_)) return false;
  for (const KeptState& state : states_) {
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
    it = is_contained ? drop(it) : std::next(it);
  }
  if (n_bytes_max_ < 0) return;
  while (!states_.empty() && n_bytes_ + n_bytes > static_cast<std::size_t>(n_bytes_max_)) {
    drop(states_.begin());
  }
}

void PromptCache::put(KeptState state) {
  states_.push_back(std::move(state));
  n_bytes_ += states_.back().n_bytes;
  if (states_.back().ticket != CellStore::kNoTicket) ++n_unfinished_;
}

std::optional<KeptState> PromptCache::take(std::span<const TokenId> cells,
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
  forget(*best);
  std::optional<KeptState> state(std::move(*best));
  states_.erase(best);
  return state;
}

}  // namespace unpaced
