// The prompts without a slot: where one goes when its slot is taken over by another, and where it
// comes back from. Decode thread only; used between steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>

#include "kept/kept_state.h"

namespace unpaced {

// What a prompt was computed with and for whom, as Slot has both.
struct CacheKey {
  std::span<const float> lora_scales;
  CacheDomain cache_domain = 0;
};

// The rules are llama-server's (llama.cpp 0c1e57098 tools/server/server-task.cpp:1691-1900): a
// prompt that another one begins with is not kept twice, the oldest goes first, and a state is
// taken only if it fits the new prompt better than what the slot holds and at least a quarter of it
// is of use. Of others a copy of their beginning may be had (find_lender()). States computed with
// other adapters or for other cache domains have nothing to do with each other.
class PromptCache {
 public:
  // -1: no limit, 0: off.
  explicit PromptCache(std::int64_t n_bytes_max) : n_bytes_max_(n_bytes_max) {}

  [[nodiscard]] bool enabled() const noexcept { return n_bytes_max_ != 0; }
  // Of those that are here and of those that were taken.
  [[nodiscard]] std::size_t n_bytes() const noexcept { return n_bytes_ + n_bytes_taken_; }
  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }

  // True if a state of these tokens and this size is to be kept: it is not there yet and can fit.
  [[nodiscard]] bool wants(std::span<const TokenId> tokens, std::size_t n_bytes,
                           const CacheKey& key = {}) const noexcept;
  // Drops what the new state makes superfluous and the oldest ones beyond the limit. The caller
  // asks wants() first, then makes room before it puts the state.
  void make_room(std::span<const TokenId> tokens, std::size_t n_bytes,
                 const CacheKey& key = {}) noexcept;
  // It counts with all its bytes from now on, copied or not.
  void put(KeptState state);

  // The state that serves `prompt` best, if it does so better than a slot that holds `cells`; of
  // those under a ticket alone, if `only_in_cells`. Null: there is none.
  [[nodiscard]] const KeptState* find(std::span<const TokenId> cells,
                                      std::span<const TokenId> prompt, const CacheKey& key = {},
                                      bool only_in_cells = false) const noexcept;
  // Of those that are in their parts as a whole, the state that has most of the prompt's beginning,
  // if more than n_held tokens: as much of it can be copied, and is there still afterwards. Null:
  // there is none.
  [[nodiscard]] const KeptState* find_lender(std::size_t n_held, std::span<const TokenId> prompt,
                                             const CacheKey& key = {}) const noexcept;
  // What was found is the caller's. Its bytes count until it is put back or released.
  [[nodiscard]] KeptState take(const KeptState& found) noexcept;
  void release(const KeptState& taken) noexcept { n_bytes_taken_ -= taken.n_bytes; }
  // Throws std::bad_alloc, and it is the caller's still.
  void put_back(KeptState& taken);
  // How much of the prompt's beginning find() could give to a slot that holds nothing.
  [[nodiscard]] std::size_t longest_match(std::span<const TokenId> prompt,
                                          const CacheKey& key = {}) const noexcept;
  // Those whose cells are under a ticket, with this key.
  template <class Visit>
  void visit_parked(const CacheKey& key, Visit visit) const {
    for (const KeptState& state : states_) {
      if (state.ticket != CellStore::kNoTicket && has_key(state, key)) visit(state);
    }
  }

  // The last one that was put.
  [[nodiscard]] const KeptState& newest() const noexcept { return states_.back(); }
  // The oldest one whose cells are not all copied yet; null: there is none.
  [[nodiscard]] KeptState* unfinished() noexcept;
  [[nodiscard]] bool has_unfinished() const noexcept { return n_unfinished_ > 0; }
  // The oldest one that is in its parts as a whole and still under a ticket, of which `is_meant`
  // says so; null: there is none.
  template <class IsMeant>
  [[nodiscard]] KeptState* copied(IsMeant is_meant) noexcept {
    if (!has_unfinished()) return nullptr;
    const auto found = std::ranges::find_if(states_, [&](const KeptState& state) {
      return state.ticket != CellStore::kNoTicket && state.is_copied() && is_meant(state.ticket);
    });
    return found == states_.end() ? nullptr : &*found;
  }
  // All of it is in its parts now.
  void finish(KeptState& state) noexcept;
  // Drops those that `is_lost` says so of; returns their number.
  template <class IsLost>
  std::size_t drop_if(IsLost is_lost) noexcept {
    const std::size_t n_before = states_.size();
    for (auto it = states_.begin(); it != states_.end();) {
      it = is_lost(*it) ? drop(it) : std::next(it);
    }
    return n_before - states_.size();
  }
  // False: there is none.
  bool drop_oldest() noexcept;
  // What has been dropped, for the caller to dispose of: it may be large, and have a ticket.
  [[nodiscard]] std::list<KeptState>& dropped() noexcept { return dropped_; }

 private:
  using States = std::list<KeptState>;
  [[nodiscard]] static bool has_key(const KeptState& state, const CacheKey& key) noexcept {
    return state.cache_domain == key.cache_domain &&
           std::ranges::equal(state.lora_scales, key.lora_scales);
  }
  States::iterator drop(States::iterator it) noexcept;
  void forget(const KeptState& state) noexcept;

  const std::int64_t n_bytes_max_;
  States states_;  // the oldest first
  States dropped_;
  std::size_t n_unfinished_ = 0;
  std::size_t n_bytes_ = 0;
  std::size_t n_bytes_taken_ = 0;
};

}  // namespace unpaced
