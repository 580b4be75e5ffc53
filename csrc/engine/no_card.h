#pragma once

#include <string>

namespace unpaced {

// Why CUDA finds no card, and what to do, as one sentence. Versions are CUDA's numbers: 13000 is
// 13.0, `driver` is 0 without a driver. `status` is what CUDA says itself.
inline std::string why_no_card(int driver, int runtime, const std::string& status) {
  const auto dotted = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  const std::string cpu = "-ngl 0 serves on the CPU";
  // Within one major version every driver runs every runtime.
  const std::string needed =
      "one that runs CUDA " + dotted(runtime / 1000 * 1000) + ", release 580 or newer";
  if (driver == 0) {
    return "this build is for CUDA, and there is no NVIDIA driver here (" + needed + "): " + cpu;
  }
  if (driver / 1000 < runtime / 1000) {
    return "the NVIDIA driver runs CUDA " + dotted(driver) + ", and this build needs " + needed +
           ": update it, or " + cpu;
  }
  return "this build is for CUDA, and the NVIDIA driver shows no card (" + status + "): " + cpu;
}

}  // namespace unpaced
