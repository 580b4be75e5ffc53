// What a start says where a CUDA build finds no card.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace unpaced {

// What keeps a driver's cards from this process, as far as it can tell; empty: nothing that it
// sees. `devices` is /dev, `visible` the value of CUDA_VISIBLE_DEVICES, null where it is not set.
// engine_ext/llama_build/driver.py says the same before a build.
inline std::string what_hides_cards(const std::filesystem::path& devices, const char* visible) {
  std::vector<std::filesystem::path> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_card = name.size() > 6 && name.starts_with("nvidia") &&
                         name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (is_card || name == "dxg") nodes.push_back(entry.path());  // dxg: WSL2's
  }
  if (nodes.empty()) {
    return "there is no " + (devices / "nvidia0").string() +
           ", which --gpus all gives to a container";
  }
  std::ranges::sort(nodes);
  nodes.insert(nodes.end(), {devices / "nvidiactl", devices / "nvidia-uvm"});
  for (const std::filesystem::path& node : nodes) {
    if (access(node.c_str(), F_OK) == 0 && access(node.c_str(), R_OK | W_OK) != 0) {
      return "this user may not open " + node.string();
    }
  }
  return visible == nullptr ? "" : "CUDA_VISIBLE_DEVICES is '" + std::string(visible) + "'";
}

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
    return "this build is for CUDA, and there is no NVIDIA driver here (" + needed +
           "; --gpus all gives a container the host's): " + cpu;
  }
  if (driver / 1000 < runtime / 1000) {
    return "the NVIDIA driver runs CUDA " + dotted(driver) + ", and this build needs " + needed +
           ": update it, or " + cpu;
  }
  return "this build is for CUDA, and the NVIDIA driver shows no card (" + status + "): " + cpu;
}

}  // namespace unpaced
