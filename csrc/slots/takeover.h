// What was done with the slots' contents to make way for a request; the front end logs it.
#pragma once

#include <cstdint>

namespace unpaced {

struct Takeover {
  bool updated = false;     // the slot's old contents were kept, or better ones were looked for
  std::int32_t n_idle = 0;  // idle slots whose state was copied
  // Of the prompt's tokens that host memory had: those that were copied from there, and those that
  // are computed since that is quicker.
  std::int32_t n_copied = 0;
  std::int32_t n_computed = 0;
};

}  // namespace unpaced
