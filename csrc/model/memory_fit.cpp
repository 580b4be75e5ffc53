#include "model/memory_fit.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace unpaced {
namespace {

constexpr std::int64_t kCellsPerStep = 256;  // as llama.cpp rounds a context

// What a plan takes of one device, or of the host, and may take. Bytes.
struct Share {
  std::int64_t used = 0;
  std::int64_t limit = 0;
};

std::int64_t total_of(const MemoryUse& use) {
  return static_cast<std::int64_t>(use.model_bytes + use.context_bytes + use.compute_bytes +
                                   use.loop_bytes);
}

std::int64_t margin(const EngineConfig& config, std::size_t device) {
  const std::vector<std::int64_t>& margins = config.fit_margins;
  if (margins.empty()) return 0;
  return margins[std::min(device, margins.size() - 1)];
}

// One a device that the plan uses; the host's where it uses none.
std::vector<Share> shares_of(const EngineConfig& config, const MemoryPlan& plan,
                             const std::vector<DeviceInfo>& devices) {
  std::vector<Share> found;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Share share;
    for (const MemoryUse& use : plan.uses) {
      if (use.device_name == devices[i].name) share.used += total_of(use);
    }
    share.limit = static_cast<std::int64_t>(devices[i].free_bytes) - margin(config, i);
    if (share.used > 0) found.push_back(share);
  }
  if (!found.empty()) return found;
  Share host;
  for (const MemoryUse& use : plan.uses) host.used += total_of(use);
  host.limit = config.fit_host_bytes - margin(config, 0);
  return {host};
}

class Fitting {
 public:
  Fitting(const EngineConfig& config, const Planner& plan, const std::vector<DeviceInfo>& devices)
      : asked_(config), config_(config), plan_(plan), devices_(devices) {}

  FittedConfig run() {
    const bool fits_context = asked_.n_ctx == 0;
    MemoryPlan whole = plan_(config_);
    const std::int64_t n_parts = asked_.kv_unified ? 1 : asked_.n_slots;
    const std::int64_t n_max = std::min<std::int64_t>(whole.n_ctx_train * n_parts, kMostCells);
    const std::int64_t n_min = std::min<std::int64_t>(asked_.fit_n_ctx_min * n_parts, kMostCells);
    if (fits_context && n_parts > 1) {
      // llama.cpp would divide one training context between the slots.
      whole = plan_with_context(n_max);
    }
    if (fits(whole)) return {config_, ""};
    if (fits_context && n_max > n_min) fit_context(whole, n_min, n_max);
    if (asked_.n_gpu_layers == -1 && uses_device(whole)) fit_layers(whole.n_layer + 1);
    return {config_, change_};
  }

 private:
  static constexpr int kTries = 4;
  static constexpr std::int64_t kMostCells = std::numeric_limits<std::int32_t>::max();

  MemoryPlan plan_with_context(std::int64_t n_ctx) {
    config_.n_ctx = static_cast<std::int32_t>(n_ctx);
    return plan_(config_);
  }

  std::vector<Share> shares(const MemoryPlan& plan) const {
    return shares_of(asked_, plan, devices_);
  }

  bool uses_device(const MemoryPlan& plan) const {
    return std::any_of(plan.uses.begin(), plan.uses.end(),
                       [](const MemoryUse& use) { return !use.device_name.empty(); });
  }

  bool fits(const MemoryPlan& plan) const { return fits_memory(asked_, plan, devices_); }

  void fit_context(const MemoryPlan& whole, std::int64_t n_min, std::int64_t n_max) {
    const std::vector<Share> least = shares(plan_with_context(n_min));
    std::int64_t n_ctx = n_max;
    // Between two sizes memory grows in proportion, but for what has a limit: it grows faster then.
    MemoryPlan plan = whole;
    for (int i = 0; i < kTries && n_ctx > n_min && !fits(plan); ++i) {
      n_ctx = largest_context(least, shares(plan), n_min, n_ctx);
      plan = plan_with_context(n_ctx);
    }
    change_ =
        "the context is " + std::to_string(n_ctx) + " tokens instead of " + std::to_string(n_max);
  }

  // That fits, if `n_min` takes `least` and `n_max` takes `most`.
  std::int64_t largest_context(const std::vector<Share>& least, const std::vector<Share>& most,
                               std::int64_t n_min, std::int64_t n_max) const {
    const std::int64_t step = kCellsPerStep * (asked_.kv_unified ? 1 : asked_.n_slots);
    std::int64_t n_ctx = n_max;
    for (std::size_t i = 0; i < std::min(most.size(), least.size()); ++i) {
      const std::int64_t grown = most[i].used - least[i].used;
      if (most[i].used <= most[i].limit || grown <= 0) continue;
      const double part =
          static_cast<double>(most[i].limit - least[i].used) / static_cast<double>(grown);
      const auto cells = static_cast<std::int64_t>(static_cast<double>(n_max - n_min) * part);
      n_ctx = std::min(n_ctx, n_min + cells);
    }
    return std::max(n_min, n_ctx - n_ctx % step);
  }

  // As many layers on the devices as they hold: the fewer there are, the less they take.
  void fit_layers(std::int32_t n_all) {
    if (fits(plan_(config_))) return;
    std::int32_t low = 0;  // fits, or nothing does
    std::int32_t high = n_all;
    while (high - low > 1) {
      config_.n_gpu_layers = (low + high) / 2;
      (fits(plan_(config_)) ? low : high) = config_.n_gpu_layers;
    }
    config_.n_gpu_layers = low;
    change_ += change_.empty() ? "" : ", and ";
    change_ += std::to_string(low) + " of " + std::to_string(n_all) + " layers are on the GPU";
  }

  const EngineConfig& asked_;
  EngineConfig config_;
  const Planner& plan_;
  const std::vector<DeviceInfo>& devices_;
  std::string change_;
};

}  // namespace

bool fits_memory(const EngineConfig& config, const MemoryPlan& plan,
                 const std::vector<DeviceInfo>& devices) {
  const std::vector<Share> all = shares_of(config, plan, devices);
  return std::all_of(all.begin(), all.end(),
                     [](const Share& share) { return share.used <= share.limit; });
}

FittedConfig fit_to_memory(const EngineConfig& config, const Planner& plan,
                           const std::vector<DeviceInfo>& devices) {
  const bool is_open = config.n_ctx == 0 || (config.n_gpu_layers == -1 && !devices.empty());
  if (!config.fit || !is_open) return {config, ""};
  try {
    return Fitting(config, plan, devices).run();
  } catch (const std::runtime_error&) {
    return {config, ""};
  }
}

}  // namespace unpaced
