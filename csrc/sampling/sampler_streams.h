// What sampling moves from token to token beside the text: the random streams and mirostat's state.
#pragma once

#include "sampling/arithmetic/mt19937.h"
#include "sampling/chain/mirostat.h"

namespace unpaced {

struct SamplerStreams {
  Mt19937 rng = Mt19937();
  Mt19937 xtc = Mt19937();  // of the chain's first XTC link
  Mirostat mirostat = {};
};

}  // namespace unpaced
