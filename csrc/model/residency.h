// Where a model, its KV and the nodes of a decode step live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct llama_context;

namespace unpaced {

// Bytes that llama.cpp holds in one kind of memory.
struct HeldMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
  std::size_t compute = 0;
};

struct Residency {
  static constexpr std::size_t kMaxNamed = 16;

  std::map<std::string, HeldMemory> memory;  // by buffer type: CUDA0, CUDA_Host, CPU ...
  // Devices whose memory has weights or KV buffers: CUDA0 ... A CUDA build fills this.
  std::vector<std::string> cards;
  // Weights and KV buffers that are not in a GPU's memory; a CUDA build fills these.
  std::vector<std::string> elsewhere;  // the first kMaxNamed of them: "NAME (MEMORY)"
  std::int32_t n_elsewhere = 0;
  std::uint64_t bytes_elsewhere = 0;
  // Nodes of the one-token decode graph, by backend; a CUDA build fills these.
  std::map<std::string, std::int32_t> nodes;
  std::int32_t n_splits = 0;
};

[[nodiscard]] std::map<std::string, HeldMemory> memory_of(const llama_context* context);
// Weights, KV and what is computed lie in memory of the CPU's; no GPU has a part in it.
[[nodiscard]] bool is_on_cpu_alone(const llama_context* context);

}  // namespace unpaced
