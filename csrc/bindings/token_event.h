// What Python sees of a TokenEvent.
#pragma once

#include <vector>

#include "request/records.h"

namespace unpaced {

// The record, and the alternatives that came before it.
struct PyTokenEvent {
  TokenEvent record;
  std::vector<TokenLogprob> alternatives;
};

}  // namespace unpaced
