// Stop strings as Python holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "request/stop_strings.h"

namespace unpaced {

// Shared by the requests that have the same.
struct PyStopStrings {
  std::shared_ptr<const StopStrings> stops;
  // Only where the GPU may run the loop.
  std::shared_ptr<const std::vector<std::uint32_t>> completing_tokens;
};

PyStopStrings compile_stops(std::shared_ptr<const StopStrings> stops, bool for_device);

}  // namespace unpaced
