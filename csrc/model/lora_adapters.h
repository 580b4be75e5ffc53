// The LoRA adapters that a model was loaded with, and how much of each is in force. Decode thread
// only.
#pragma once

#include <llama.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace unpaced {

class LoraAdapters {
 public:
  LoraAdapters() = default;
  // Loads the files for `model`, which owns them from then on; none is in force. Throws
  // std::runtime_error that names the file.
  LoraAdapters(llama_model* model, std::span<const std::pair<std::string, float>> files);

  // One scale an adapter; 0: without it. Costs the context's next step a reservation of its graphs
  // where they change, and nothing where they do not.
  void apply(llama_context* context, std::span<const float> scales);

 private:
  std::vector<llama_adapter_lora*> adapters_;
  std::vector<float> scales_;
  bool are_applied_ = true;  // false: scales_ may not be what the context has
};

}  // namespace unpaced
