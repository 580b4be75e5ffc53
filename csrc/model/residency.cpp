#include "model/residency.h"

#include <ggml-backend.h>

#include <algorithm>

// Of llama.cpp's sources: no public header says what a context holds.
#include "../src/llama-ext.h"

namespace unpaced {

std::map<std::string, HeldMemory> memory_of(const llama_context* context) {
  std::map<std::string, HeldMemory> memory;
  for (const auto& [type, use] : llama_get_memory_breakdown(context)) {
    if (use.total() == 0) continue;
    HeldMemory& of_type = memory[ggml_backend_buft_name(type)];
    of_type.weights += use.model;
    of_type.kv += use.context;
    of_type.compute += use.compute;
  }
  return memory;
}

bool is_on_cpu_alone(const llama_context* context) {
  return std::ranges::none_of(llama_get_memory_breakdown(context), [](const auto& entry) {
    const auto& [type, use] = entry;
    const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    if (use.total() == 0 || device == nullptr) return false;
    const enum ggml_backend_dev_type kind = ggml_backend_dev_type(device);
    return kind != GGML_BACKEND_DEVICE_TYPE_CPU && kind != GGML_BACKEND_DEVICE_TYPE_ACCEL;
  });
}

}  // namespace unpaced
