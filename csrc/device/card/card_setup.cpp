#include "device/card/card_setup.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "device/draw/sample_kernels.h"

namespace unpaced {
namespace {

// As llama.cpp names the device.
bool may_use(const ModelOptions& options, int device) {
  const auto& names = options.devices;
  return names.empty() || std::ranges::find(names, "CUDA" + std::to_string(device)) != names.end();
}

void set_up_card(int device, bool needs_code) {
  // Waits that block instead of spinning a core; ggml's waits are of this kind too then. The first
  // call is for a device that nobody has used so far, the last one for any other.
  constexpr unsigned kFlags = cudaDeviceScheduleBlockingSync;
  cudaInitDevice(device, kFlags, cudaInitDeviceFlagsAreValid);
  cudaSetDevice(device);
  cudaSetDeviceFlags(kFlags);
  cudaGetLastError();
  if (!needs_code) return;
  try {
    static_cast<void>(step_kernel_code());
  } catch (const std::runtime_error& e) {
    // ggml would end the process at its first kernel.
    throw std::runtime_error("CUDA" + std::to_string(device) + ": " + e.what() +
                             " (-dev or CUDA_VISIBLE_DEVICES chooses among cards)");
  }
}

}  // namespace

void set_up_cards(const EngineConfig& config, int n_devices) {
  const bool needs_code = config.n_gpu_layers != 0 || config.require_device;
  int first = -1;
  for (int device = n_devices - 1; device >= 0; --device) {
    if (!may_use(config.options, device)) continue;
    set_up_card(device, needs_code);
    first = device;
  }
  if (first >= 0) cudaSetDevice(first);
}

}  // namespace unpaced
