// Rows of logits one prefill chunk may ask for when a request wants the logprobs of its prompt.
// Each row is n_vocab floats of output buffer, so the chunk is shorter than a plain one.
#pragma once

#include <cstdint>

namespace unpaced {

inline constexpr std::int32_t kPromptLogprobRows = 64;

}  // namespace unpaced
