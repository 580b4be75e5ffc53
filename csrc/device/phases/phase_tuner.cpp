#include "device/phases/phase_tuner.h"

#include <limits>

#include "device/phases/kernel_arguments.h"

namespace unpaced {

std::vector<VariantTime> PhaseTuner::tune(std::span<const StepPhase* const> phases) {
  std::vector<VariantTime> times;
  const std::vector<PhaseLaunch>& launches = phases.front()->launches;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (const auto* products = std::get_if<ProductLaunch>(&launches[i])) {
      tune(phases, i, mat_vec_of(products->parts), times);
    } else if (const auto* gated = std::get_if<GatedLaunch>(&launches[i])) {
      tune(phases, i, mat_vec_of(gated->part), times);
    }
  }
  return times;
}

void PhaseTuner::tune(std::span<const StepPhase* const> phases, std::size_t launch,
                      const MatVec& mat_vec, std::vector<VariantTime>& times) {
  std::int32_t best = 0;
  double least = std::numeric_limits<double>::max();
  for (std::int32_t i = 0; i < n_mat_vec_variants(mat_vec, card_); ++i) {
    choices_.choose(mat_vec, i);
    const bool is_exact = trial_.is_exact(*phases.front());
    const double seconds = trial_.measure_own(phases);
    times.push_back({launch, i, is_exact, seconds});
    if (!is_exact || seconds >= least) continue;
    least = seconds;
    best = i;
  }
  choices_.choose(mat_vec, best);
}

}  // namespace unpaced
