// A token as every floor knows it.
#pragma once

#include <cstdint>

namespace unpaced {

using TokenId = std::int32_t;

struct TokenLogprob {
  TokenId token;
  float logprob;  // natural logarithm; or a probability where the request asked post_sampling_probs
};

}  // namespace unpaced
