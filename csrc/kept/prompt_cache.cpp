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
                        const CacheKey& key) const noexcept {
  if (!enabled() || tokens.empty() || n_bytes == 0) return false;
  // Those that were taken cannot be dropped.
  if (n_bytes_max_ > 0 && n_bytes_taken_ + n_bytes > static_cast<std::size_t>(n_bytes_max_)) {
    return false;
  }
  for (const KeptState& state : states_) {
    if (!has_key(state, key)) continue;
    if (common_prefix_length(state.tokens, tokens) == tokens.size()) return false;
  }
  return true;
}

void PromptCache::make_room(std::span<const TokenId> tokens, std::size_t n_bytes,
                            const CacheKey& key) noexcept {
  for (auto it = states_.begin(); it != states_.end();) {
    const bool is_contained =
        common_prefix_length(it->tokens, tokens) == it->tokens.size() && has_key(*it, key);
    it = is_contained ? drop(it) : std::next(it);
  }
  if (n_bytes_max_ < 0) return;
  while (!states_.empty() &&
         n_bytes_ + n_bytes_taken_ + n_bytes > static_cast<std::size_t>(n_bytes_max_)) {
    drop(states_.begin());
  }
}

bool PromptCache::drop_oldest() noexcept {
  if (states_.empty()) return false;
  drop(states_.begin());
  return true;
}

void PromptCache::put(KeptState state) {
  states_.push_back(std::move(state));
  n_bytes_ += states_.back().n_bytes;
  if (states_.back().ticket != CellStore::kNoTicket) ++n_unfinished_;
}

const KeptState* PromptCache::find(std::span<const TokenId> cells, std::span<const TokenId> prompt,
                                   const CacheKey& key, bool only_in_cells) const noexcept {
  const auto n_prompt = static_cast<float>(prompt.size());
  const auto n_held = static_cast<float>(common_prefix_length(cells, prompt));
  // An empty slot keeps nothing: any state is better.
  float best_keep = cells.empty() ? -1.0F : n_held / static_cast<float>(cells.size());
  float best_similarity = n_held / n_prompt;
  const KeptState* best = nullptr;
  for (const KeptState& state : states_) {
    if (!has_key(state, key)) continue;
    if (only_in_cells && state.ticket == CellStore::kNoTicket) continue;
    const auto n_common = static_cast<float>(common_prefix_length(state.tokens, prompt));
    const float keep = n_common / static_cast<float>(state.tokens.size());
    const float similarity = n_common / n_prompt;
    if (keep < kKeepAtLeast || keep <= best_keep || similarity <= best_similarity) continue;
    best_keep = keep;
    best_similarity = similarity;
    best = &state;
  }
  return best;
}

const KeptState* PromptCache::find_lender(std::size_t n_held, std::span<const TokenId> prompt,
                                          const CacheKey& key) const noexcept {
  const KeptState* best = nullptr;
  for (const KeptState& state : states_) {
    if (!has_key(state, key) || state.ticket != CellStore::kNoTicket) continue;
    const std::size_t n_common = common_prefix_length(state.tokens, prompt);
    if (n_common <= n_held) continue;
    n_held = n_common;
    best = &state;
  }
  return best;
}

KeptState PromptCache::take(const KeptState& found) noexcept {
  const auto it =
      std::ranges::find_if(states_, [&](const KeptState& state) { return &state == &found; });
  forget(*it);
  n_bytes_taken_ += it->n_bytes;
  KeptState taken = std::move(*it);
  states_.erase(it);
  return taken;
}

void PromptCache::put_back(KeptState& taken) {
  states_.emplace_back();
  release(taken);
  n_bytes_ += taken.n_bytes;
  if (taken.ticket != CellStore::kNoTicket) ++n_unfinished_;
  states_.back() = std::move(taken);
}

std::size_t PromptCache::longest_match(std::span<const TokenId> prompt,
                                       const CacheKey& key) const noexcept {
  std::size_t n_longest = 0;
  for (const KeptState& state : states_) {
    if (!has_key(state, key)) continue;
    const std::size_t n = common_prefix_length(state.tokens, prompt);
    const float keep = static_cast<float>(n) / static_cast<float>(state.tokens.size());
    if (keep >= kKeepAtLeast) n_longest = std::max(n_longest, n);
  }
  return n_longest;
}

}  // namespace unpaced
