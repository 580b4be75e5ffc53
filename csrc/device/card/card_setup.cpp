#include "device/card/card_setup.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "device/draw/sample_kernels.h"
#include "model/card_choice.h"

namespace unpaced {
namespace {

// As llama.cpp names the device.
std::string name_of_device(int device) { return "CUDA" + std::to_string(device); }

bool may_use(const ModelOptions& options, int device) {
  const auto& names = options.devices;
  if (!names.empty()) return std::ranges::find(names, name_of_device(device)) != names.end();
  return options.split_mode != LLAMA_SPLIT_MODE_NONE || options.main_gpu == device;
}

void set_flags(int device) {
  // Waits that block instead of spinning a core; ggml's waits are of this kind too then. The first
  // call is for a device that nobody has used so far, the last one for any other.
  constexpr unsigned kFlags = cudaDeviceScheduleBlockingSync;
  cudaInitDevice(device, kFlags, cudaInitDeviceFlagsAreValid);
  cudaSetDevice(device);
  cudaSetDeviceFlags(kFlags);
  cudaGetLastError();
}

// Why the current device cannot be used; empty: it can. ggml would end the process at its first
// kernel.
std::string why_not() {
  try {
    static_cast<void>(step_kernel_code());
    return {};
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

}  // namespace

UsableCards set_up_cards(const EngineConfig& config, int n_devices) {
  const bool needs_code = config.n_gpu_layers != 0 || config.require_device;
  std::vector<std::string> names;
  std::vector<std::string> unusable;
  UsableCards made;
  int first = -1;
  for (int device = n_devices - 1; device >= 0; --device) {
    names.insert(names.begin(), name_of_device(device));
    if (!may_use(config.options, device)) continue;
    set_flags(device);
    if (const std::string reason = needs_code ? why_not() : ""; !reason.empty()) {
      unusable.push_back(name_of_device(device));
      made.left_out.push_back(name_of_device(device) + ": " + reason);
    } else {
      first = device;
    }
  }
  made.config = without_devices(config, names, unusable);
  const bool is_left_open = made.config.options.devices.size() > config.options.devices.size();
  if (!unusable.empty() && !is_left_open) {
    throw std::runtime_error(made.left_out.back() +
                             " (-dev or CUDA_VISIBLE_DEVICES chooses among cards)");
  }
  if (first >= 0) cudaSetDevice(first);
  return made;
}

}  // namespace unpaced
