// Whether short prompts are computed by captured graphs: decided once, at the start.
#pragma once

#include <memory>

#include "decode/counters.h"
#include "device/prompt/prompt_graphs.h"
#include "model/decode_loop.h"
#include "model/model.h"

namespace unpaced {

// Tested; null: `report` says why llama_decode computes all prompts. The KV must be empty, and is
// after. Throws EngineLost where the GPU hangs.
[[nodiscard]] std::unique_ptr<PromptGraphs> start_prompts(const Model& model,
                                                          const EngineConfig& config,
                                                          Counters& counters,
                                                          DecodeLoopReport& report);

}  // namespace unpaced
