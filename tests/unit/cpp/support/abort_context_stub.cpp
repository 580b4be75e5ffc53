// The tests of the decode thread alone have no ggml that could abort: log_sink.cpp is not linked.
#include "log/log_sink.h"

namespace unpaced {

void set_abort_context(const AbortContext& /*context*/, void* /*owner*/) noexcept {}

}  // namespace unpaced
