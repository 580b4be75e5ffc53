#include "device/loop/self_test/lane_trials.h"

#include <algorithm>
#include <exception>

#include "decode/engine_lost.h"

namespace unpaced {
namespace {

constexpr double kMicroseconds = 1e6;

// One for each number of columns that kernels of ours are built for, and as many as there are: the
// numbers between have the builds of the next one. And eights of those.
bool is_measured(std::int32_t n_rows, std::int32_t n_lanes) noexcept {
  return n_rows == 2 || n_rows == 4 || n_rows % kRowsOfOneKernel == 0 ||
         n_rows == std::min(n_lanes, kRowsOfOneKernel);
}

// Of more rows the fewest, the half and all of a graph's, and as many as there are.
bool is_checked(std::int32_t n_rows, std::int32_t n_lanes) noexcept {
  const std::int32_t n_last = n_rows % kRowsOfOneKernel;
  return n_rows <= kRowsOfOneKernel || n_last <= 1 || n_last == 5 || n_rows == n_lanes;
}

}  // namespace

std::vector<LaneStepReport> LaneTrials::run(StepKernels kernels) {
  std::vector<LaneStepReport> reports;
  const auto n_lanes = static_cast<std::int32_t>(loop_.n_lanes());
  std::size_t first = 0;  // of those that go by the next measurement
  for (std::int32_t n_rows = 2; n_rows <= n_lanes; ++n_rows) {
    if (bridge_.n_streams() > 1 ? loop_.n_graph_rows(static_cast<std::size_t>(n_rows)) != n_rows
                                : !is_checked(n_rows, n_lanes)) {
      continue;
    }
    LaneStepReport& report = reports.emplace_back();
    report.n_rows = n_rows;
    check(report);
    if (kernels != StepKernels::kAuto || !is_measured(n_rows, n_lanes)) continue;
    if (step_.has_rows_as_alone()) {
      report.own_us = kMicroseconds * test_.step_seconds(static_cast<std::size_t>(n_rows), limit_);
      continue;
    }
    measure(report);
    if (report.own_us > report.ggml_us) {
      for (; first < reports.size(); ++first) {
        leave_to_ggml(reports[first], "ggml's are faster on this card");
      }
    }
    first = reports.size();
  }
  test_.clear();
  return reports;
}

void LaneTrials::check(LaneStepReport& report) {
  const auto n_rows = static_cast<std::size_t>(report.n_rows);
  try {
    test_.check(n_rows);
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception& e) {
    const std::int32_t n_graph_rows = loop_.n_graph_rows(n_rows);
    if (step_.has_rows_as_alone()) throw;
    clear_loop();
    if (step_.why_ggml(n_graph_rows).empty() && step_.has_own(n_graph_rows)) {
      step_.leave_rows(n_graph_rows, e.what());
    } else if (n_graph_rows != report.n_rows) {
      loop_.stop_padding();
    } else {
      throw;
    }
    return check(report);
  }
  report.n_graph_rows = loop_.n_graph_rows(n_rows);
  if (report.why.empty()) report.why = step_.why_ggml(report.n_graph_rows);
  if (report.why.empty() && !step_.has_own(report.n_graph_rows)) {
    report.why = "there are no kernels of ours for such a step";
  }
}

void LaneTrials::measure(LaneStepReport& report) {
  if (!report.why.empty()) return;
  const auto n_rows = static_cast<std::size_t>(report.n_rows);
  report.own_us = kMicroseconds * test_.step_seconds(n_rows, limit_);
  step_.leave_rows(report.n_graph_rows, "they are measured");
  report.ggml_us = kMicroseconds * test_.step_seconds(n_rows, limit_);
  step_.leave_rows(report.n_graph_rows, "");
}

void LaneTrials::leave_to_ggml(LaneStepReport& report, const std::string& why) {
  if (!report.why.empty()) return;
  report.why = why;
  step_.leave_rows(report.n_graph_rows, why);
  clear_loop();
  test_.check(static_cast<std::size_t>(report.n_rows));
}

void LaneTrials::clear_loop() {
  loop_.drop();
  loop_.wait_for_stream();
  loop_.unseat();
  loop_.forget_graphs();
}

}  // namespace unpaced
