// Where the token loop runs, and why there.
#pragma once

#include <cstdint>
#include <string>

#include "model/residency.h"

namespace unpaced {

enum class DecodeLoop : std::int32_t {
  kHost = 0,    // llama_decode and the CPU's sampling core, token by token
  kAhead = 1,   // the GPU samples and feeds itself; the host launches every step, some ahead
  kDevice = 2,  // the GPU runs the loop: one launch for a window of KV cells
};
inline constexpr std::int32_t kDecodeLoopAuto = -1;  // the best that is exact

// Constant once the engine is ready.
struct DecodeLoopReport {
  DecodeLoop loop = DecodeLoop::kHost;
  std::string reason;  // why not a better one; empty: it is the best
  std::string device;  // name of the GPU; empty: none is used
  Residency residency;
};

}  // namespace unpaced
