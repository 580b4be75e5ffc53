// Which of a mat-vec's builds serves, by what each took by itself and then in whole steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace unpaced {

struct BuildTime {
  std::int32_t build;
  double seconds;
};

// The build that serves where nothing was measured.
inline constexpr std::int32_t kFirstBuild = 0;

// Those nearly as fast as the fastest one, that first: within 6 % of it, four at most. And the
// first build, which may be the better one in a whole step.
[[nodiscard]] inline std::vector<std::int32_t> nearly_fastest(std::vector<BuildTime> times) {
  constexpr double kNearly = 1.06;
  constexpr std::size_t kMost = 4;
  std::ranges::sort(times, [](const BuildTime& a, const BuildTime& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.build < b.build;
  });
  std::vector<std::int32_t> builds;
  for (const BuildTime& time : times) {
    if (time.seconds > kNearly * times.front().seconds || builds.size() == kMost) break;
    builds.push_back(time.build);
  }
  if (std::ranges::find(builds, kFirstBuild) == builds.end()) builds.push_back(kFirstBuild);
  return builds;
}

// The same builds, this one of them first.
[[nodiscard]] inline std::vector<std::int32_t> begun_by(std::vector<std::int32_t> builds,
                                                        std::int32_t first) {
  const auto found = std::ranges::find(builds, first);
  if (found != builds.end()) std::rotate(builds.begin(), found, found + 1);
  return builds;
}

// The one with which a step takes least, of those that there is time to try; the first one, if
// there is none for any.
[[nodiscard]] inline std::int32_t settled(const std::vector<std::int32_t>& builds,
                                          const std::function<double(std::int32_t)>& step_seconds,
                                          const std::function<bool()>& has_time) {
  std::int32_t best = builds.front();
  double least = std::numeric_limits<double>::max();
  for (const std::int32_t build : builds) {
    if (!has_time()) break;
    const double seconds = step_seconds(build);
    if (seconds >= least) continue;
    least = seconds;
    best = build;
  }
  return best;
}

}  // namespace unpaced
