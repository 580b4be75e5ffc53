// What a step tells of probabilities beside its token.
#pragma once

#include <cstdint>

#include "request/records.h"

namespace unpaced {

inline constexpr std::int32_t kMaxLogprobs = 128;  // alternatives a step; more are the host's

// In pinned memory, one for each step of a launch; complete before the step's mailbox entry.
struct StepLogprobs {
  float drawn;  // the token's own logarithm of probability, or probability
  std::int32_t n_pairs;
  TokenLogprob pair[kMaxLogprobs];
};

enum class LogprobKind : std::int32_t {
  kNone = 0,
  kBefore,  // logarithms of the plain softmax of the model's row
  kAfter,   // probabilities that the chain leaves
};

// What a request wants of them.
struct LogprobPlan {
  LogprobKind kind;
  std::int32_t n_pairs;  // 0 .. kMaxLogprobs
  StepLogprobs* out;     // kMaxSteps of them
};

}  // namespace unpaced
