// DeviceLoop's windows of KV cells: what a step in one is made of, and which are captured when.
#include <algorithm>
#include <stdexcept>

#include "decode/engine_lost.h"
#include "device/draw/sample_kernels.h"
#include "device/loop/device_loop.h"

namespace unpaced {
namespace {

// One lane's windows that are captured at the start.
constexpr std::int32_t kWindowsAhead = 16;
// Of a crowd: a window for each row, and at least so many.
constexpr std::int32_t kCrowdWindowsLeast = 8;
// Of a crowd in streams of their own, of which there are more blocks.
constexpr std::int32_t kStreamWindowsAhead = 4;

// Behind a copy, which is no kernel.
DrawLaunch after_copy(DrawLaunch draw) {
  draw.starts_early = false;
  return draw;
}

}  // namespace

MakeStepProgram DeviceLoop::program(Draws draws) const {
  return [this, draws](const LlamaBridge& bridge) {
    const bool is_masked = draws == Draws::kMasked;
    if (is_masked || bridge.window().n_outputs > 1) return lane_program(bridge, is_masked);
    return row_program(bridge, draws == Draws::kStepwise);
  };
}

StepProgram DeviceLoop::row_program(const LlamaBridge& bridge, bool keeps_rows) const {
  StepProgram program;
  program.guard_by([this](const StepSite& site) {
    launch_step_guard(lane().control(), site.condition, site.stream);
  });
  graph_(program, bridge);
  if (keeps_rows) {
    program.then([this](const StepSite& site) { lane().keep_row(site.logits, site.stream); });
  }
  program.then([this, draw = keeps_rows ? after_copy(draw_) : draw_](const StepSite& site) {
    launch_step_kernels(arguments(site, lane(), 0), draw, site.stream);
  });
  return program;
}

StepProgram DeviceLoop::lane_program(const LlamaBridge& bridge, bool is_masked) const {
  StepProgram program;
  program.guard_by([this](const StepSite& site) {
    launch_lane_guard(rows_.data(), site.condition, site.stream);
  });
  graph_(program, bridge);
  program.then([this, is_masked](const StepSite& site) {
    const DrawLaunch& draw = is_masked ? masked_draw_ : lane_draw_;
    const LaneKernelArguments rows = lane_arguments(site, draw);
    is_masked ? launch_masked_kernels(rows, draw, site.stream)
              : launch_lane_kernels(rows, draw, site.stream);
  });
  return program;
}

StepKernelArguments DeviceLoop::arguments(const StepSite& site, const Lane& lane,
                                          std::int32_t i) const noexcept {
  const StepInputs inputs = bridge_.inputs().of_row(i, site.window.n_kv);
  return {.rows = {lane.row(site.logits + static_cast<std::int64_t>(i) * n_vocab_, inputs)},
          .loop = site.condition,
          .loops = site.loops,
          .keys_are_far = draw_.keys_are_far};
}

LaneKernelArguments DeviceLoop::lane_arguments(const StepSite& site,
                                               const DrawLaunch& draw) const noexcept {
  return {.lanes = rows_.data(),
          .n_rows = site.window.n_outputs,
          .n_vocab = n_vocab_,
          .logits = site.logits,
          .inputs = bridge_.inputs(),
          .n_kv = site.window.n_kv,
          .loop = site.condition,
          .loops = site.loops,
          .keys_are_far = draw.keys_are_far};
}

void DeviceLoop::run_graph() {
  StepProgram program;
  graph_(program, bridge_);
  program.enqueue(bridge_, {.stream = bridge_.stream(),
                            .window = {},
                            .logits = bridge_.logits(),
                            .condition = {},
                            .loops = false});
}

void DeviceLoop::forget_graphs() noexcept {
  graphs_.clear();
  masked_graphs_.clear();
  stepwise_graphs_.clear();
}

std::int32_t DeviceLoop::n_graph_rows(std::size_t n_lanes) const noexcept {
  const auto n = static_cast<std::int32_t>(n_lanes);
  if (has_blocks()) return block_of(0, n - 1).n_rows;
  if (!pads_ || n <= kRowsOfOneKernel) return n;
  const std::int32_t n_padded = (n + kRowsOfOneKernel - 1) / kRowsOfOneKernel * kRowsOfOneKernel;
  return std::min(n_padded, static_cast<std::int32_t>(lanes_.size()));
}

DeviceLoop::Block DeviceLoop::block_of(std::int32_t low, std::int32_t high) const noexcept {
  std::int32_t n = 1;
  while (low / n != high / n) n *= 2;
  const std::int32_t first = low / n * n;
  return {.first = first, .n_rows = std::min(n, bridge_.n_streams() - first)};
}

std::optional<Window> DeviceLoop::window_of(std::span<const CellPlan> plans) const noexcept {
  std::int32_t n_used = 0;
  for (const CellPlan& plan : plans) {
    n_used = std::max({n_used, plan.n_used, plan.cells.front() + 1});
  }
  const std::int32_t n_kv = bridge_.window_cells(n_used);
  const auto [low, high] = std::ranges::minmax(plans, {}, &CellPlan::stream);
  if (!has_blocks()) {
    // A row by itself knows its stream.
    const std::int32_t stream = plans.size() == 1 ? low.stream : 0;
    return bridge_.rows_window(stream, n_kv, n_graph_rows(plans.size()));
  }
  const Block block = block_of(low.stream, high.stream);
  if (block.n_rows > static_cast<std::int32_t>(lanes_.size())) return std::nullopt;
  return bridge_.rows_window(block.first, n_kv, block.n_rows);
}

std::int32_t DeviceLoop::enter_window(std::span<const CellPlan> plans) {
  const std::optional<Window> window = window_of(plans);
  if (!window) return 0;
  window_ = *window;
  std::int32_t n_used = 0;
  for (const CellPlan& plan : plans) n_used = std::max(n_used, plan.n_used);
  const std::size_t n_planned = plans.front().cells.size();
  std::int32_t n_steps = 0;
  for (std::size_t i = 0; i < n_planned; ++i) {
    for (const CellPlan& plan : plans) n_used = std::max(n_used, plan.cells[i] + 1);
    if (bridge_.window_cells(n_used) != window_.n_kv) break;
    ++n_steps;
  }
  return n_steps;
}

void DeviceLoop::prepare_windows() {
  wanted_.clear();
  const auto n_most = static_cast<std::int32_t>(lanes_.size());
  const std::int32_t n_windows = std::max(n_windows_ahead(1), n_windows_ahead(n_most));
  std::int32_t n_kv = 0;
  for (std::int32_t i = 0; i < n_windows && n_kv < bridge_.n_cells(); ++i) {
    n_kv = bridge_.window_cells(n_kv + 1);
    if (i < n_windows_ahead(1)) {
      for (std::int32_t stream = 0; stream < bridge_.n_streams(); ++stream) {
        static_cast<void>(graphs_.get({.stream = stream, .n_kv = n_kv}));
      }
    }
    want_crowds(n_kv, i);
  }
}

void DeviceLoop::want_crowds(std::int32_t n_kv, std::int32_t i_window) {
  const auto n_most = static_cast<std::int32_t>(lanes_.size());
  for (std::int32_t n = 2; n <= n_most; ++n) {
    if (n_graph_rows(static_cast<std::size_t>(n)) != n || i_window >= n_windows_ahead(n)) continue;
    wanted_.push_back(bridge_.rows_window(0, n_kv, n));
    // In streams of their own: every block of as many.
    for (std::int32_t first = n; has_blocks() && first < bridge_.n_streams(); first += n) {
      const Block block = block_of(first, first + n - 1);
      if (block.n_rows == n) wanted_.push_back(bridge_.rows_window(first, n_kv, n));
    }
  }
}

std::int32_t DeviceLoop::n_windows_ahead(std::int32_t n_rows) const noexcept {
  if (n_rows == 1) return std::max(1, kWindowsAhead / bridge_.n_streams());
  if (bridge_.n_streams() > 1) return kStreamWindowsAhead;
  // Rows share the cells, so crowds are through with the first windows sooner.
  return std::max(kCrowdWindowsLeast, n_rows);
}

bool DeviceLoop::use_idle_time() {
  // The self-test has some of them, and requests may have come before.
  while (!wanted_.empty() && graphs_.has(wanted_.front())) wanted_.pop_front();
  if (wanted_.empty()) return false;
  const Window window = wanted_.front();
  wanted_.pop_front();
  try {
    static_cast<void>(graphs_.get(window));
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    wanted_.clear();  // mostly for want of device memory; who needs one tries again
  }
  return true;
}

}  // namespace unpaced
