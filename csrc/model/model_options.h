// How a model is loaded beyond its file: placement, memory, position encoding, adapters.
#pragma once

#include <llama.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace unpaced {

// A split mode that card_choice.h decides.
inline constexpr std::int32_t kSplitAuto = -1;

// Names and values are llama.cpp's enums and parameters of the same name (llama.h, ggml-cpu.h).
struct ModelOptions {
  std::int32_t load_mode = LLAMA_LOAD_MODE_AUTO;
  std::int32_t lazy_mode = LLAMA_LAZY_MODE_AUTO;
  std::vector<std::string> kv_overrides;  // "KEY=TYPE:VALUE", TYPE one of int, float, bool, str
  std::vector<std::string> devices;       // names; empty: all; "none" alone: none
  std::vector<std::pair<std::string, std::string>> tensor_overrides;  // pattern, buffer type
  std::int32_t split_mode = kSplitAuto;
  std::vector<float> tensor_split;
  std::int32_t main_gpu = 0;
  bool repack = true;
  bool no_host = false;
  bool op_offload = true;
  bool kv_offload = true;
  std::int32_t rope_scaling = LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED;
  float rope_freq_base = 0.0F;  // 0: the model's
  float rope_freq_scale = 0.0F;
  float yarn_ext_factor = -1.0F;  // below 0: the model's, these four
  float yarn_attn_factor = -1.0F;
  float yarn_beta_fast = -1.0F;
  float yarn_beta_slow = -1.0F;
  std::uint32_t yarn_orig_ctx = 0;
  std::vector<std::pair<std::string, float>> loras;  // file, scale unless a request has its own
  std::int32_t numa = 0;                             // ggml_numa_strategy
  std::int32_t priority = 0;                         // ggml_sched_priority of ggml's workers
  std::int32_t poll_batch = -1;                      // as poll, for prompts; -1: the same

  [[nodiscard]] bool uses_no_device() const {
    return devices.size() == 1 && devices.front() == "none";
  }
  [[nodiscard]] std::vector<float> lora_scales() const {
    std::vector<float> scales;
    for (const auto& [path, scale] : loras) scales.push_back(scale);
    return scales;
  }
};

// llama_model_params and the arrays that they point to. Neither copied nor moved: pointers within.
class ModelParams {
 public:
  // `gpu_layers` as llama.cpp's. Throws std::runtime_error for a device, buffer type or override
  // that there is not; the text lists those there are.
  ModelParams(const ModelOptions& options, std::int32_t gpu_layers);
  ModelParams(const ModelParams&) = delete;
  ModelParams& operator=(const ModelParams&) = delete;

  llama_model_params params = llama_model_default_params();

 private:
  void set_devices(const ModelOptions& options);
  void set_tensor_overrides(const ModelOptions& options, std::int32_t gpu_layers);
  void set_kv_overrides(const ModelOptions& options);

  // That has what llama.cpp puts on no particular one; null: the CPU.
  [[nodiscard]] ggml_backend_dev_t main_device(const ModelOptions& options) const;

  std::vector<ggml_backend_dev_t> devices_;
  std::vector<std::string> patterns_;
  std::vector<llama_model_tensor_buft_override> tensor_overrides_;
  std::vector<llama_model_kv_override> kv_overrides_;
  std::vector<float> tensor_split_;
};

// What of the options concerns the context.
void apply_context_options(const ModelOptions& options, llama_context_params& params);

// Why these options keep the GPU from running the token loop; empty: they do not.
[[nodiscard]] std::string device_loop_obstacle(const ModelOptions& options);

}  // namespace unpaced
