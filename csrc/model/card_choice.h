// Which cards a model goes to where the configuration leaves it open.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/memory_fit.h"

namespace unpaced {

// The card with most free memory, of those that llama.cpp would split a model over; the first of
// equals. Null: there are fewer than two.
[[nodiscard]] const DeviceInfo* emptiest_card(std::span<const DeviceInfo> devices) noexcept;

// The configuration for the devices but `unusable` ones: without them where it leaves open which
// devices it takes and how it splits the model, unchanged where it does not.
[[nodiscard]] EngineConfig without_devices(const EngineConfig& config,
                                           std::span<const std::string> devices,
                                           std::span<const std::string> unusable);

struct PlacedConfig {
  EngineConfig config;
  std::string fit;     // what was made smaller, one sentence; empty: nothing
  std::string choice;  // of one card or of several, one sentence; empty: there was none
};

// A split mode of kSplitAuto becomes "none" on the emptiest card if the model fits there with all
// layers that it may have, and with its whole context or kEnoughContext tokens of it a slot; else
// "layer" on all cards, which is llama.cpp's. Cards are those that the configuration names, or all.
// Then as fit_to_memory(). Where the file cannot be read nothing is chosen: loading will say why.
[[nodiscard]] PlacedConfig place_model(const EngineConfig& config, const Planner& plan,
                                       const std::vector<DeviceInfo>& devices);
inline constexpr std::int64_t kEnoughContext = 32768;

// The same for this machine.
[[nodiscard]] PlacedConfig place_model(const EngineConfig& config);

}  // namespace unpaced
