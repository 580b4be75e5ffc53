#include "model/card_choice.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace unpaced {
namespace {

std::string gib(std::size_t n_bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(n_bytes) / (1UL << 30U));
  return text;
}

std::size_t bytes_on(const MemoryPlan& plan, const std::string& device) {
  std::size_t n_bytes = 0;
  for (const MemoryUse& use : plan.uses) {
    if (use.device_name != device) continue;
    n_bytes += use.model_bytes + use.context_bytes + use.compute_bytes + use.loop_bytes;
  }
  return n_bytes;
}

// The context is what was asked for, the whole training context, or enough for most uses.
bool has_enough_context(const EngineConfig& asked, const MemoryPlan& plan) {
  if (!asked.fit || asked.n_ctx != 0) return true;
  const std::int64_t n_parts = asked.kv_unified ? 1 : std::max(1, asked.n_slots);
  const std::int64_t least = std::max<std::int64_t>(kEnoughContext, asked.fit_n_ctx_min);
  return plan.n_ctx / n_parts >= std::min<std::int64_t>(least, plan.n_ctx_train);
}

EngineConfig with_layers_split(const EngineConfig& config) {
  EngineConfig made = config;
  made.options.split_mode = LLAMA_SPLIT_MODE_LAYER;
  return made;
}

PlacedConfig place_on_all(const EngineConfig& config, const Planner& plan,
                          const std::vector<DeviceInfo>& devices, const std::string& choice) {
  const FittedConfig fitted = fit_to_memory(with_layers_split(config), plan, devices);
  return {fitted.config, fitted.change, choice};
}

// What the configuration does not name is no card of its.
std::vector<DeviceInfo> named_devices(const ModelOptions& options,
                                      const std::vector<DeviceInfo>& devices) {
  std::vector<DeviceInfo> named = devices;
  for (DeviceInfo& device : named) {
    const bool is_named = options.devices.empty() ||
                          std::ranges::find(options.devices, device.name) != options.devices.end();
    device.is_card = device.is_card && is_named;
  }
  return named;
}

std::size_t n_cards(std::span<const DeviceInfo> devices) {
  return static_cast<std::size_t>(
      std::ranges::count_if(devices, [](const DeviceInfo& device) { return device.is_card; }));
}

PlacedConfig place(const EngineConfig& config, const Planner& plan,
                   const std::vector<DeviceInfo>& devices, const DeviceInfo& card) {
  EngineConfig alone = config;
  alone.options.split_mode = LLAMA_SPLIT_MODE_NONE;
  alone.options.devices = {card.name};
  alone.options.main_gpu = 0;  // of these
  const FittedConfig fitted = fit_to_memory(alone, plan, devices);
  const MemoryPlan planned = plan(fitted.config);
  const bool fits = fitted.config.n_gpu_layers == config.n_gpu_layers &&
                    fits_memory(fitted.config, planned, devices);
  const std::string n = std::to_string(n_cards(devices)) + " cards";
  if (fits && has_enough_context(config, planned)) {
    return {fitted.config, fitted.change,
            "the model goes to " + card.name + ", the emptiest of " + n +
                "; -sm layer splits it between all of them"};
  }
  const std::string split =
      "the model is split between " + n + ": " + card.name + ", the emptiest, ";
  if (fits) {
    return place_on_all(config, plan, devices,
                        split + "has room for " + std::to_string(planned.n_ctx) +
                            " tokens of context only (-c asks for fewer)");
  }
  // With what it would have there: all layers and the least context.
  EngineConfig least = alone;
  least.n_ctx = fitted.config.n_ctx;
  return place_on_all(config, plan, devices,
                      split + "has " + gib(card.free_bytes) + " free, and the model takes " +
                          gib(bytes_on(plan(least), card.name)));
}

}  // namespace

const DeviceInfo* emptiest_card(std::span<const DeviceInfo> devices) noexcept {
  const DeviceInfo* emptiest = nullptr;
  for (const DeviceInfo& device : devices) {
    if (!device.is_card) continue;
    if (emptiest == nullptr || device.free_bytes > emptiest->free_bytes) emptiest = &device;
  }
  return n_cards(devices) < 2 ? nullptr : emptiest;
}

EngineConfig without_devices(const EngineConfig& config, std::span<const std::string> devices,
                             std::span<const std::string> unusable) {
  const ModelOptions& options = config.options;
  const bool is_open = options.devices.empty() && options.tensor_split.empty() &&
                       options.split_mode != LLAMA_SPLIT_MODE_NONE;
  EngineConfig made = config;
  if (!is_open || unusable.empty()) return made;
  for (const std::string& name : devices) {
    if (std::ranges::find(unusable, name) == unusable.end()) made.options.devices.push_back(name);
  }
  return made;
}

PlacedConfig place_model(const EngineConfig& config, const Planner& plan,
                         const std::vector<DeviceInfo>& devices) {
  const ModelOptions& options = config.options;
  if (options.split_mode != kSplitAuto) {
    const FittedConfig fitted = fit_to_memory(config, plan, devices);
    return {fitted.config, fitted.change, ""};
  }
  const std::vector<DeviceInfo> named = named_devices(options, devices);
  const DeviceInfo* card = emptiest_card(named);
  if (card == nullptr || config.n_gpu_layers == 0) return place_on_all(config, plan, named, "");
  try {
    return place(config, plan, named, *card);
  } catch (const std::runtime_error&) {
    return {with_layers_split(config), "", ""};
  }
}

PlacedConfig place_model(const EngineConfig& config) {
  return place_model(config, plan_memory, list_devices());
}

}  // namespace unpaced
