#include "device/phases/trials/phase_tuner.h"

#include <utility>

#include "device/phases/kernel_arguments.h"
#include "device/phases/trials/build_contest.h"

namespace unpaced {

namespace {

constexpr std::int32_t kBuildsMost = 16;  // of a mat-vec; the digits of a phase's builds

// A mat-vec of a phase, and which of the launches it is.
struct PlacedMatVec {
  std::size_t launch;
  MatVec mat_vec;
};

// Products of more columns have one build.
std::vector<PlacedMatVec> mat_vecs_of(const StepPhase& phase) {
  std::vector<PlacedMatVec> all;
  const auto add = [&all](std::size_t i, const MatVec& mat_vec) {
    if (mat_vec.order_columns <= kMatVecColumns) all.push_back({i, mat_vec});
  };
  for (std::size_t i = 0; i < phase.launches.size(); ++i) {
    if (const auto* products = std::get_if<ProductLaunch>(&phase.launches[i])) {
      add(i, mat_vec_of(products->parts));
    } else if (const auto* gated = std::get_if<GatedLaunch>(&phase.launches[i])) {
      add(i, mat_vec_of(gated->part));
    }
  }
  return all;
}

}  // namespace

std::vector<VariantTime> PhaseTuner::tune(std::span<const StepPhase* const> phases) {
  std::vector<VariantTime> times;
  for (const PlacedMatVec& placed : mat_vecs_of(*phases.front()))
    tune(phases, placed.launch, placed.mat_vec, times);
  return times;
}

std::int32_t PhaseTuner::chosen(const StepPhase& phase) const {
  std::int32_t builds = 0;
  std::int32_t digit = 1;
  for (const PlacedMatVec& placed : mat_vecs_of(phase)) {
    builds += digit * choices_.of(placed.mat_vec);
    digit *= kBuildsMost;
  }
  return builds;
}

void PhaseTuner::choose(const StepPhase& phase, std::int32_t builds) {
  for (const PlacedMatVec& placed : mat_vecs_of(phase)) {
    choices_.choose(placed.mat_vec, builds % kBuildsMost);
    builds /= kBuildsMost;
  }
}

void PhaseTuner::tune(std::span<const StepPhase* const> phases, std::size_t launch,
                      const MatVec& mat_vec, std::vector<VariantTime>& times) {
  std::vector<BuildTime> tried;
  const std::int32_t n = n_mat_vec_variants(mat_vec, card_);
  for (std::int32_t i = 0; i < n; ++i) {
    choices_.choose(mat_vec, i);
    tried.push_back({i, trial_.measure_own(phases)});
    times.push_back({launch, i, tried.back().seconds});
  }
  const Contest& contest = contests_.emplace_back(Contest{mat_vec, nearly_fastest(tried)});
  choices_.choose(mat_vec, contest.builds.front());
}

void PhaseTuner::settle(const std::function<double()>& step_seconds,
                        std::chrono::steady_clock::time_point until) {
  const auto has_time = [until] { return std::chrono::steady_clock::now() <= until; };
  if (!contests_.empty() && has_time()) begin_contests(step_seconds);
  for (const Contest& contest : contests_) {
    if (contest.builds.size() == 1) continue;
    const auto seconds_by = [&](std::int32_t build) {
      choices_.choose(contest.mat_vec, build);
      return step_seconds();
    };
    const std::int32_t now = choices_.of(contest.mat_vec);
    const std::int32_t best = settled(begun_by(contest.builds, now), seconds_by, has_time);
    choices_.choose(contest.mat_vec, best);
  }
  contests_.clear();
}

void PhaseTuner::begin_contests(const std::function<double()>& step_seconds) {
  const double by_fastest = step_seconds();
  for (const Contest& contest : contests_) choices_.choose(contest.mat_vec, kFirstBuild);
  if (step_seconds() < by_fastest) return;
  for (const Contest& contest : contests_) choices_.choose(contest.mat_vec, contest.builds.front());
}

}  // namespace unpaced
