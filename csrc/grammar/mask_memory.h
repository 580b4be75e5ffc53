// Masks that a grammar's sequences have made, by the place of the text that they were made for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/text_places.h"

namespace unpaced {

// Any thread. At one place the same texts can follow, so every sequence has the same mask there.
class MaskMemory {
 public:
  using Words = std::vector<std::uint32_t>;

  // A place of a text. A sequence keeps its own up to date.
  struct Mark {
    TextPlaces::Place place;
    std::uint64_t age = 0;  // of the places: they are forgotten when there are too many
  };

  // `max_bytes`: of all masks.
  explicit MaskMemory(std::vector<GrammarPart> parts, std::size_t max_bytes = std::size_t{4} << 20U,
                      const TextPlacesLimits& limits = {});

  [[nodiscard]] Mark start();
  [[nodiscard]] Mark advance(Mark mark, std::string_view text);

  // The mask of a place; null: none is kept.
  [[nodiscard]] std::shared_ptr<const Words> find(const Mark& mark) const;
  // Keeps a mask. The oldest one goes where there is no room.
  void keep(const Mark& mark, std::span<const std::uint32_t> words);
  [[nodiscard]] std::size_t n_kept() const;

 private:
  [[nodiscard]] static std::uint64_t key(const Mark& mark) noexcept {
    return static_cast<std::uint64_t>(mark.place.number) << 32U | mark.place.bytes;
  }
  [[nodiscard]] bool is_current(const Mark& mark) const noexcept {
    return mark.age == age_ && mark.place.is_known();
  }

  mutable std::mutex mutex_;
  TextPlaces places_;
  std::uint64_t age_ = 0;
  const std::size_t max_bytes_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Words>> masks_;
  std::deque<std::uint64_t> order_;  // keys, the oldest first
};

}  // namespace unpaced
