// Chooses the stepper for a model, and says why. Decode thread only.
#pragma once

#include <memory>

#include "decode/counters.h"
#include "decode/stepper.h"
#include "model/decode_loop.h"
#include "model/engine_config.h"
#include "model/model.h"

namespace unpaced {

// Before the model is loaded: settings of the CUDA runtime, and whether there is a device at all.
// Returns the configuration without the cards that this build has no code for, and logs which.
// Throws std::runtime_error if a CUDA build was not told to run without a device.
[[nodiscard]] EngineConfig configure_device(const EngineConfig& config);

// Fills the report. Throws std::runtime_error if the configuration requires what cannot be had.
std::unique_ptr<Stepper> make_stepper(std::shared_ptr<Model> model, const EngineConfig& config,
                                      Counters& counters, DecodeLoopReport& report);

}  // namespace unpaced
