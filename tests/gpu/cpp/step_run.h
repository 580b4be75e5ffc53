// Whole steps by a program, in a graph of their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/loop/own_step.h"
#include "device/phases/step_program.h"
#include "device/phases/trials/timed_graph.h"
#include "device/state/cuda_memory.h"

namespace unpaced {

inline constexpr std::chrono::seconds kPatience{10};

struct Made {
  std::vector<float> logits;
  double seconds = 0;
};

// The inputs of a token's step at the position, whose K and V go to the cell of that number.
inline void put_inputs(LlamaBridge& bridge, const Window& window, std::int32_t position,
                       std::int32_t token) {
  const StepInputs& inputs = bridge.inputs();
  const std::int64_t cell = position;
  std::vector<std::uint16_t> mask(static_cast<std::size_t>(window.n_kv), 0xfc00);
  for (std::int32_t i = 0; i <= position; ++i) mask[static_cast<std::size_t>(i)] = 0;
  const auto put = [](auto* to, const auto* from, std::size_t n) {
    copy_up_now(to, from, n * sizeof *from);
  };
  put(inputs.token, &token, 1);
  put(inputs.position, &position, 1);
  put(inputs.k_index, &cell, 1);
  put(inputs.v_index, &cell, 1);
  put(inputs.mask, mask.data(), mask.size());
}

// Of some token.
inline void put_inputs(LlamaBridge& bridge, const Window& window, std::int32_t position) {
  put_inputs(bridge, window, position, 300 + position);
}

// Of the graph that is open. The last of three runs.
inline Made run(LlamaBridge& bridge, const StepProgram& program, const Window& window,
                std::size_t n_vocab) {
  TimedGraph graph(bridge.stream(), [&] {
    program.enqueue(bridge, {.stream = bridge.stream(),
                             .window = window,
                             .logits = bridge.logits(),
                             .condition = {},
                             .loops = false});
  });
  Made made;
  for (int i = 0; i < 3; ++i) made.seconds = graph.seconds(kPatience);
  made.logits.resize(n_vocab);
  cuda_check(cudaMemcpy(made.logits.data(), bridge.logits(), n_vocab * sizeof(float),
                        cudaMemcpyDeviceToHost),
             "cudaMemcpy");
  return made;
}

inline Made make_step(LlamaBridge& bridge, OwnStep& own, const Window& window,
                      std::int32_t position, std::size_t n_vocab) {
  bridge.open(window);
  put_inputs(bridge, window, position);
  StepProgram program;
  own.add_to(program, bridge);
  return run(bridge, program, window, n_vocab);
}

// How many logits differ.
inline std::size_t n_different(const Made& a, const Made& b) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i)
    n += std::memcmp(&a.logits[i], &b.logits[i], sizeof(float)) == 0 ? 0 : 1;
  return n;
}

}  // namespace unpaced
