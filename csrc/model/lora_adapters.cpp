#include "model/lora_adapters.h"

#include <algorithm>
#include <stdexcept>

#include "log/log_sink.h"

namespace unpaced {

LoraAdapters::LoraAdapters(llama_model* model, std::span<const std::pair<std::string, float>> files)
    : scales_(files.size()) {
  for (const auto& [path, scale] : files) {
    llama_adapter_lora* adapter = llama_adapter_lora_init(model, path.c_str());
    if (adapter == nullptr) {
      const std::string logged = ErrorCapture::take();
      throw std::runtime_error("cannot load LoRA adapter " + path +
                               (logged.empty() ? "" : ": " + logged));
    }
    if (llama_adapter_get_alora_n_invocation_tokens(adapter) > 0) {
      throw std::runtime_error("cannot use LoRA adapter " + path +
                               ": it wants to be switched on by tokens of the prompt (aLoRA)");
    }
    adapters_.push_back(adapter);
  }
}

void LoraAdapters::apply(llama_context* context, std::span<const float> scales) {
  if (are_applied_ && std::ranges::equal(scales, scales_)) return;
  are_applied_ = false;
  scales_.assign(scales.begin(), scales.end());
  llama_set_adapters_lora(context, adapters_.data(), adapters_.size(), scales_.data());
  are_applied_ = true;
}

}  // namespace unpaced
