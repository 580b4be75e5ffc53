// Whether what a kept prompt holds comes back by copy or is computed, by what both are known to
// take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kept/kept_state.h"
#include "kept/size_cost.h"

namespace unpaced {

// What a request may have, in microseconds from now on.
struct RestoreOffer {
  double copy_us = 0;  // of all parts that it reuses; 0: nobody knows
  // Of the tokens that it would compute instead. Infinite: nobody knows.
  double compute_us = std::numeric_limits<double>::infinity();
  double first_us = 0;  // of the first part alone, beyond what that saves
};

// How copies go on beside those who compute: for so long, then a step of theirs. No step: 0.
struct CopyPace {
  std::int64_t turn_us = 0;  // 0: a turn is a part
  double step_us = 0;
};

// Decode thread only. It learns from every part that is copied. Where something is not known it
// counts in favour of the copy, which is known after the first parts. Where computing is quicker
// nothing is copied and so nothing learned: a first part is copied now and then, to see whether
// that has become quicker. All that this costs is a small part of what computing took, however slow
// copies are.
class RestoreChoice {
 public:
  enum class Way : std::uint8_t {
    kCopy,
    kTry,     // the first part is copied, the rest as goes_on() says then
    kCompute  // nothing is copied
  };

  // A part of n cells came back in so long.
  void observe(std::int32_t n, double us) noexcept {
    ++n_seen_;
    part_.observe(n, us);
  }

  // What it takes at least until so many cells have come back, of parts of a state; 0: nobody
  // knows.
  [[nodiscard]] double copy_us(std::span<const StatePart> parts, std::int32_t n_cells,
                               const CopyPace& pace) const noexcept;

  // For a request that begins. Times that differ by less than a quarter change no mind: what was
  // chosen the last time is chosen again.
  [[nodiscard]] Way choose(const RestoreOffer& offer) noexcept;
  // For one whose first parts have come: whether the next one does, too.
  [[nodiscard]] bool goes_on(const RestoreOffer& offer) const noexcept { return copies(offer); }

  [[nodiscard]] const SizeCost& part() const noexcept { return part_; }

 private:
  [[nodiscard]] bool copies(const RestoreOffer& offer) const noexcept;

  // Fewer parts may all have been held up by somebody else.
  static constexpr std::int64_t kSeenMin = 4;

  SizeCost part_;
  std::int64_t n_seen_ = 0;
  bool has_copied_ = true;       // the last time
  std::int32_t n_computed_ = 0;  // requests, since the last part was tried
  double trials_us_ = 0;         // that trials may take now
};

}  // namespace unpaced
