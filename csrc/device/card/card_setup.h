// The CUDA runtime's settings for the cards that a configuration may use. Decode thread only.
#pragma once

#include <string>
#include <vector>

#include "model/engine_config.h"

namespace unpaced {

// What a configuration may use of the devices that CUDA shows.
struct UsableCards {
  EngineConfig config;                // without those that this build has no code for
  std::vector<std::string> left_out;  // a sentence for each of them
};

// Before the model is loaded. Throws std::runtime_error if this build has no code for a card that
// was chosen, or for any.
[[nodiscard]] UsableCards set_up_cards(const EngineConfig& config, int n_devices);

}  // namespace unpaced
