// How much memory a model and its context will take, without taking it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine_config.h"

namespace unpaced {

// One kind of memory. Sizes are bytes.
struct MemoryUse {
  std::string buffer_type;  // llama.cpp's name, such as CPU or CUDA0
  std::string device;       // description; empty for the host's memory
  std::string device_name;  // as in list_devices(); likewise
  bool is_host = true;
  std::size_t model_bytes = 0;
  std::size_t context_bytes = 0;
  std::size_t compute_bytes = 0;
  std::size_t loop_bytes = 0;  // of the GPU's decode loop; see loop_memory.h
};

struct MemoryPlan {
  std::vector<MemoryUse> uses;
  std::uint32_t n_ctx = 0;  // all slots together
  std::uint32_t n_ctx_slot = 0;
  std::uint32_t n_ctx_train = 0;
  std::int32_t n_layer = 0;
  std::uint64_t n_params = 0;
  std::string description;
};

// Reads the file's metadata and has llama.cpp lay everything out without allocating it.
// Throws std::runtime_error with one sentence that names the file.
[[nodiscard]] MemoryPlan plan_memory(const EngineConfig& config);

struct DeviceInfo {
  std::string name;
  std::string description;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  bool is_card = true;  // llama.cpp splits models over these
};

// Devices other than the CPU.
[[nodiscard]] std::vector<DeviceInfo> list_devices();

}  // namespace unpaced
