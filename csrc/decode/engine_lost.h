// The end of an engine that cannot go on.
#pragma once

#include <stdexcept>

namespace unpaced {

// What the stepper works with is broken for good, or does not answer. Whoever throws it promises
// nothing any more: the stepper's methods are not to be called again, nor its destructor, which
// could wait for ever or have ggml abort the process.
class EngineLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace unpaced
