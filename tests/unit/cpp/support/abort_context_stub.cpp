// The tests of the decode thread alone have no ggml that could abort: abort_handler.cpp is not
// linked.
#include "log/abort_handler.h"

namespace unpaced {

void set_abort_context(const AbortContext& /*context*/, void* /*owner*/) noexcept {}

}  // namespace unpaced
