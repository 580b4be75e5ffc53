// Chooses the stepper for a model, and says why. Decode thread only.
#pragma once

#include <memory>

#include "decode/counters.h"
#include "decode/stepper.h"
#include "model/decode_loop.h"
#include "model/engine_config.h"
#include "model/model.h"

namespace unpaced {

// The configuration without the cards that this build has no code for, which are logged, and the
// CUDA runtime's settings for the others. Throws std::runtime_error where such a card was chosen.
[[nodiscard]] EngineConfig with_usable_cards(const EngineConfig& config);

// The same before the model is loaded. Throws std::runtime_error, too, if there is no device and a
// CUDA build was not told to run without.
[[nodiscard]] EngineConfig configure_device(const EngineConfig& config);

// Fills the report. Throws std::runtime_error if the configuration requires what cannot be had.
std::unique_ptr<Stepper> make_stepper(std::shared_ptr<Model> model, const EngineConfig& config,
                                      Counters& counters, DecodeLoopReport& report);

}  // namespace unpaced
