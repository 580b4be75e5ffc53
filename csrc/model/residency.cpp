#include "model/residency.h"

#include <ggml-backend.h>

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

}  // namespace unpaced
