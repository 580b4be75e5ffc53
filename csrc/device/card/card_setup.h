// The CUDA runtime's settings for the cards that a configuration may use. Decode thread only.
#pragma once

#include "model/engine_config.h"

namespace unpaced {

// Before the model is loaded, with as many devices as CUDA shows. Throws std::runtime_error if this
// build has no code for one of those that may be used.
void set_up_cards(const EngineConfig& config, int n_devices);

}  // namespace unpaced
