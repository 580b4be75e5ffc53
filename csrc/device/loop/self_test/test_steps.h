// What the self-tests of one sequence and of several do alike.
#pragma once

#include <span>

#include "device/loop/device_loop.h"

namespace unpaced {

// Runs the graph that is open, whose inputs are ready, and waits. logits: as many as it leaves.
// Throws std::runtime_error.
inline void run_graph(DeviceLoop& loop, LlamaBridge& bridge, std::span<float> logits) {
  loop.run_graph();
  cuda_check(cudaMemcpyAsync(logits.data(), bridge.logits(), logits.size_bytes(),
                             cudaMemcpyDeviceToHost, bridge.stream()),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(bridge.stream()), "cudaStreamSynchronize");
}

// Until the steps that were launched have landed. `take` gets each progress and takes the tokens.
// Throws std::runtime_error.
template <class Take>
void take_flight(DeviceLoop& loop, Take take) {
  while (loop.is_flying()) {
    const DeviceLoop::Progress news = loop.wait_for_news(false);
    if (news.exit == LoopExit::kNonFinite) {
      throw std::runtime_error("self-test: the device found no finite logit");
    }
    take(news);
    if (news.exit == LoopExit::kNone) {
      loop.launch_ahead();
    } else {
      loop.land();
    }
  }
}

}  // namespace unpaced
