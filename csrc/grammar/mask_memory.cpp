#include "grammar/mask_memory.h"

namespace unpaced {

MaskMemory::MaskMemory(std::vector<GrammarPart> parts, std::size_t max_bytes,
                       const TextPlacesLimits& limits)
    : places_(std::move(parts), limits), max_bytes_(max_bytes) {}

MaskMemory::Mark MaskMemory::start() {
  const std::lock_guard lock(mutex_);
  if (places_.is_full()) {  // sequences that are under way go on without
    places_.clear();
    masks_.clear();
    order_.clear();
    age_ += 1;
  }
  return {places_.start(), age_};
}

MaskMemory::Mark MaskMemory::advance(Mark mark, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!is_current(mark)) return {};
  return {places_.advance(mark.place, text), age_};
}

std::shared_ptr<const MaskMemory::Words> MaskMemory::find(const Mark& mark) const {
  const std::lock_guard lock(mutex_);
  if (!is_current(mark)) return nullptr;
  const auto found = masks_.find(key(mark));
  return found == masks_.end() ? nullptr : found->second;
}

void MaskMemory::keep(const Mark& mark, std::span<const std::uint32_t> words) {
  if (!mark.place.is_known() || words.size_bytes() > max_bytes_) return;
  auto kept = std::make_shared<const Words>(words.begin(), words.end());
  const std::lock_guard lock(mutex_);
  if (!is_current(mark)) return;
  if (!masks_.try_emplace(key(mark), std::move(kept)).second) return;
  order_.push_back(key(mark));
  while (order_.size() * words.size_bytes() > max_bytes_) {
    masks_.erase(order_.front());
    order_.pop_front();
  }
}

std::size_t MaskMemory::n_kept() const {
  const std::lock_guard lock(mutex_);
  return masks_.size();
}

}  // namespace unpaced
