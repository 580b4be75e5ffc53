// The start's tests of the GPU's kernels, for whoever watches them from another thread: a CUDA call
// that loads a kernel waits for one that hangs.
#pragma once

#include <cstdint>

#include "decode/counters.h"
#include "decode/event_publisher.h"
#include "device/draw/sample_kernels.h"

namespace unpaced {

class GpuTest {
 public:
  explicit GpuTest(Counters& counters) : counters_(counters) {
    const CardCode code = step_kernel_code();
    counters_.gpu_test_compiles.set(code.ptx == code.binary ? 0 : 1);
  }

  // One of them; the one before has ended.
  void begin() { counters_.gpu_test_us.set(static_cast<std::uint64_t>(steady_us())); }
  void end() { counters_.gpu_test_us.set(0); }

 private:
  Counters& counters_;
};

}  // namespace unpaced
