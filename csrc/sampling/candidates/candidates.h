// The tokens that may still be drawn, as an array in a definite order. The order is part of the
// result: the draw walks the array, so it must be llama.cpp's.
#pragma once

#include <cstdint>

#include "base/token.h"
#include "sampling/arithmetic/host_device.h"

namespace unpaced {

struct Candidate {
  TokenId token;
  float logit;
  float p;
};

struct Candidates {
  Candidate* data;     // capacity: the vocabulary
  Candidate* scratch;  // same capacity, contents free to use
  std::int32_t size;
  bool sorted;    // descending by logit, equal logits ascending by token
  bool by_token;  // ascending by token
};

}  // namespace unpaced
