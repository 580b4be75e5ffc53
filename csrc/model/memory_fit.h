// What a configuration leaves open, chosen so that it fits the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/engine_config.h"
#include "model/memory_plan.h"

namespace unpaced {

struct FittedConfig {
  EngineConfig config;
  std::string change;  // what was made smaller, one sentence; empty: nothing
};

using Planner = std::function<MemoryPlan(const EngineConfig&)>;

// Whether what the plan takes of each device leaves its margin free.
[[nodiscard]] bool fits_memory(const EngineConfig& config, const MemoryPlan& plan,
                               const std::vector<DeviceInfo>& devices);

// With `config.fit`: an n_ctx of 0 becomes the training context, for each slot where slots do not
// share it, or as much of it as fits but not less than fit_n_ctx_min a slot; then, if that is not
// enough, n_gpu_layers of -1 becomes as many as the devices hold. What is given is not changed, nor
// anything where `plan` throws: loading will say why. `devices` have the free memory; a plan that
// uses none of them is held against fit_host_bytes.
// Source: llama.cpp 0c1e57098 common/fit.cpp (common_params_fit_impl), which for experts and for
// parts of layers goes further.
[[nodiscard]] FittedConfig fit_to_memory(const EngineConfig& config, const Planner& plan,
                                         const std::vector<DeviceInfo>& devices);

}  // namespace unpaced
