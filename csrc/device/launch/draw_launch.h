// How the drawing kernel is launched: which blocks draw together, and where they have the row's
// keys. Chosen by what the card has and by what the code that it runs was compiled for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "device/launch/card_code.h"

namespace unpaced {

// The blocks that draw from one row.
enum class DrawTeam : std::uint8_t {
  kBlock,    // one
  kGrid,     // several, on the card at once by a cooperative launch; they meet in its memory
  kCluster,  // several of a cluster
};

[[nodiscard]] const char* name_of(DrawTeam team) noexcept;

// What a launch may have at most, where it is to be no better than that: tests ask.
struct DrawLimits {
  DrawTeam team = DrawTeam::kCluster;
  std::size_t shared_bytes = std::numeric_limits<std::size_t>::max();  // of a block
};

struct DrawLaunch {
  DrawTeam team = DrawTeam::kBlock;
  std::int32_t n_blocks = 1;
  std::size_t shared_bytes = 0;
  bool keys_are_far = false;
  bool starts_early = false;  // the step's last kernels are programmatic launches
  const char* reason = "";    // why one block draws alone; empty: it does not, or was asked to
};

// The code that the current device runs, as compute capabilities: 90 is 9.0. They differ where the
// driver has compiled another card's PTX.
struct CardCode {
  std::int32_t card = 0;
  std::int32_t ptx = 0;     // that it was compiled from
  std::int32_t binary = 0;  // whose instructions it has
};

// A programmatic launch: the kernel waits by itself for those ahead of it.
[[nodiscard]] cudaLaunchAttribute early_start() noexcept;

// "9.0" of 90.
[[nodiscard]] std::string capability_text(std::int32_t capability);

// Throws std::runtime_error, in one sentence, where there is no code for the current device.
[[nodiscard]] CardCode card_code(const void* kernel);

// The architectures of this build, as CMake has them: 80-real, 90 ... with commas.
[[nodiscard]] std::string built_architectures();

// The best launch of the kernel within the limits; raises the kernel's own limit of shared memory.
// Throws std::runtime_error if the vocabulary is too large for the current device.
// n_rows: that it draws from at once, at most. kernel_arguments: as cudaLaunchKernelExC takes them,
// for a launch that is never made.
[[nodiscard]] DrawLaunch choose_draw_launch(const void* kernel, const DrawRoom& room,
                                            const DrawLimits& limits, std::int32_t n_rows,
                                            void** kernel_arguments);

// A launch's configuration and the attribute that it points to. Neither copied nor moved.
class DrawConfig {
 public:
  DrawConfig(const DrawLaunch& launch, std::int32_t n_rows, cudaStream_t stream);
  DrawConfig(const DrawConfig&) = delete;
  DrawConfig& operator=(const DrawConfig&) = delete;

  [[nodiscard]] const cudaLaunchConfig_t& get() const noexcept { return config_; }

 private:
  cudaLaunchAttribute attributes_[2] = {};
  cudaLaunchConfig_t config_{};
};

}  // namespace unpaced
