// Why a request's tokens are drawn on the host although the engine's loop is the GPU's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace unpaced {

enum class HostReason : std::uint8_t {
  kNone = 0,    // they are not
  kShared,      // several requests are active: one llama_decode serves them together
  kLogprobs,    // the request asks for logprobs
  kLogitBias,   // more logit biases than the device holds
  kMirostat,    // the request samples by mirostat
  kAdaptiveP,   // the request samples by adaptive-p
  kDry,         // the request has DRY
  kInfill,      // the request samples by infill
  kChain,       // the chain is not one that the device draws by
  kTopK,        // more candidates than the device holds
  kStopLength,  // its stop strings are too long for the tokens that may end them to be listed
  kTextLimits,  // its lines or its time are limited: every token is looked at before the next
  kContextEnd,  // the last cell of the context: the request ends there or the context is shifted
  kReasoning,   // the request's reasoning has a budget, or may be ended from outside
  kLaunch,      // the GPU could not be given its steps, as where memory for their graph is short
};

// By HostReason; the values of a metric's label.
inline constexpr std::array<const char*, 15> kHostReasonNames{
    "none",  "shared", "logprobs",    "logit_bias",  "mirostat",    "adaptive_p", "dry",   "infill",
    "chain", "top_k",  "stop_length", "text_limits", "context_end", "reasoning",  "launch"};
inline constexpr std::size_t kHostReasons = kHostReasonNames.size();

}  // namespace unpaced
