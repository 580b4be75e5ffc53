#include "kept/restore_choice.h"

#include <algorithm>
#include <cmath>

namespace unpaced {
namespace {

// So much quicker the other way has to be.
constexpr double kClearly = 1.25;
// Requests that are computed before a part is tried, and of the time that they take, what trials
// may take.
constexpr std::int32_t kComputedMin = 8;
constexpr double kTrialsPart = 1.0 / 16;

}  // namespace

double RestoreChoice::copy_us(std::span<const StatePart> parts, std::int32_t n_cells,
                              const CopyPace& pace) const noexcept {
  if (n_seen_ < kSeenMin) return 0;
  double us = 0;
  double n_turns = -1;  // that end before the last part has come
  for (const StatePart& part : parts) {
    if (n_cells <= 0) break;
    n_cells -= part.n_cells;
    us += part_.least_us(part.n_cells);
    n_turns += 1;
  }
  if (pace.turn_us > 0) n_turns = std::min(n_turns, us / static_cast<double>(pace.turn_us));
  return us + std::floor(std::max(n_turns, 0.0)) * pace.step_us;
}

bool RestoreChoice::copies(const RestoreOffer& offer) const noexcept {
  return offer.copy_us <= offer.compute_us * (has_copied_ ? kClearly : 1 / kClearly);
}

RestoreChoice::Way RestoreChoice::choose(const RestoreOffer& offer) noexcept {
  has_copied_ = copies(offer);
  if (has_copied_) return Way::kCopy;
  ++n_computed_;
  trials_us_ += kTrialsPart * std::max(offer.compute_us, 0.0);
  if (n_computed_ < kComputedMin || offer.first_us > trials_us_) return Way::kCompute;
  n_computed_ = 0;
  trials_us_ -= std::max(offer.first_us, 0.0);
  return Way::kTry;
}

}  // namespace unpaced
