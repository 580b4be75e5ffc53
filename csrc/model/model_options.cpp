#include "model/model_options.h"

#include <ggml-backend.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace unpaced {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

ggml_backend_dev_t find_device(const std::string& name) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) continue;
    if (name == ggml_backend_dev_name(device)) return device;
    known.emplace_back(ggml_backend_dev_name(device));
  }
  throw std::runtime_error("there is no device " + name + "; there are: " + join(known));
}

ggml_backend_buffer_type_t find_buffer_type(const std::string& name) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(ggml_backend_dev_get(i));
    if (type == nullptr) continue;
    if (name == ggml_backend_buft_name(type)) return type;
    known.emplace_back(ggml_backend_buft_name(type));
  }
  throw std::runtime_error("there is no buffer type " + name + "; there are: " + join(known));
}

template <typename Number>
Number parse_number(const std::string& text, const std::string& entry) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) {
    throw std::runtime_error("not a number in the override " + entry);
  }
  return number;
}

llama_model_kv_override parse_kv_override(const std::string& entry) {
  const std::size_t equals = entry.find('=');
  const std::size_t colon = entry.find(':', equals == std::string::npos ? 0 : equals);
  llama_model_kv_override parsed{};
  if (equals == std::string::npos || colon == std::string::npos || equals >= sizeof(parsed.key)) {
    throw std::runtime_error("an override is KEY=TYPE:VALUE, not " + entry);
  }
  std::memcpy(parsed.key, entry.data(), equals);
  const std::string type = entry.substr(equals + 1, colon - equals - 1);
  const std::string value = entry.substr(colon + 1);
  if (type == "int") {
    parsed.tag = LLAMA_KV_OVERRIDE_TYPE_INT;
    parsed.val_i64 = parse_number<std::int64_t>(value, entry);
  } else if (type == "float") {
    parsed.tag = LLAMA_KV_OVERRIDE_TYPE_FLOAT;
    parsed.val_f64 = parse_number<double>(value, entry);
  } else if (type == "bool" && (value == "true" || value == "false")) {
    parsed.tag = LLAMA_KV_OVERRIDE_TYPE_BOOL;
    parsed.val_bool = value == "true";
  } else if (type == "str" && value.size() < sizeof(parsed.val_str)) {
    parsed.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
    std::memcpy(parsed.val_str, value.data(), value.size());
  } else {
    throw std::runtime_error("type or value does not fit in the override " + entry);
  }
  return parsed;
}

}  // namespace

ModelParams::ModelParams(const ModelOptions& options, std::int32_t gpu_layers) {
  params.n_gpu_layers = gpu_layers;
  params.load_mode = static_cast<llama_load_mode>(options.load_mode);
  params.lazy_mode = static_cast<llama_lazy_mode>(options.lazy_mode);
  params.split_mode = options.split_mode == kSplitAuto
                          ? LLAMA_SPLIT_MODE_LAYER
                          : static_cast<llama_split_mode>(options.split_mode);
  params.main_gpu = options.main_gpu;
  params.use_extra_bufts = options.repack;
  params.no_host = options.no_host;
  if (!options.tensor_split.empty()) {
    tensor_split_ = options.tensor_split;
    if (tensor_split_.size() > llama_max_devices()) {
      throw std::runtime_error("the tensor split has more parts than llama.cpp takes devices");
    }
    tensor_split_.resize(llama_max_devices(), 0.0F);
    params.tensor_split = tensor_split_.data();
  }
  set_devices(options);
  set_tensor_overrides(options, gpu_layers);
  set_kv_overrides(options);
}

void ModelParams::set_devices(const ModelOptions& options) {
  if (options.devices.empty()) return;
  if (!options.uses_no_device()) {
    for (const std::string& name : options.devices) devices_.push_back(find_device(name));
  }
  devices_.push_back(nullptr);
  params.devices = devices_.data();
}

void ModelParams::set_tensor_overrides(const ModelOptions& options, std::int32_t gpu_layers) {
  patterns_.reserve(options.tensor_overrides.size());
  for (const auto& [pattern, type] : options.tensor_overrides) {
    patterns_.push_back(pattern);
    tensor_overrides_.push_back({patterns_.back().c_str(), find_buffer_type(type)});
  }
  // llama.cpp keeps the token embeddings on the CPU, which would be asked at every token. The first
  // pattern that matches wins, so that an override of theirs stands.
  const ggml_backend_dev_t gpu = main_device(options);
  if (gpu != nullptr && gpu_layers != 0) {
    tensor_overrides_.push_back({"^token_embd\\.weight$", ggml_backend_dev_buffer_type(gpu)});
  }
  if (tensor_overrides_.empty()) return;
  tensor_overrides_.push_back({nullptr, nullptr});
  params.tensor_buft_overrides = tensor_overrides_.data();
}

ggml_backend_dev_t ModelParams::main_device(const ModelOptions& options) const {
  // Of those that llama.cpp chooses from.
  std::vector<ggml_backend_dev_t> devices(devices_.begin(), devices_.end());
  for (std::size_t i = 0; devices_.empty() && i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU) devices.push_back(device);
  }
  const std::size_t at = options.split_mode == LLAMA_SPLIT_MODE_NONE && options.main_gpu > 0
                             ? static_cast<std::size_t>(options.main_gpu)
                             : 0;
  return at < devices.size() ? devices[at] : nullptr;  // loading refuses a number too high
}

void ModelParams::set_kv_overrides(const ModelOptions& options) {
  if (options.kv_overrides.empty()) return;
  for (const std::string& entry : options.kv_overrides) {
    kv_overrides_.push_back(parse_kv_override(entry));
  }
  kv_overrides_.emplace_back();  // an empty key ends the list
  params.kv_overrides = kv_overrides_.data();
}

void apply_context_options(const ModelOptions& options, llama_context_params& params) {
  params.rope_scaling_type = static_cast<llama_rope_scaling_type>(options.rope_scaling);
  params.rope_freq_base = options.rope_freq_base;
  params.rope_freq_scale = options.rope_freq_scale;
  params.yarn_ext_factor = options.yarn_ext_factor;
  params.yarn_attn_factor = options.yarn_attn_factor;
  params.yarn_beta_fast = options.yarn_beta_fast;
  params.yarn_beta_slow = options.yarn_beta_slow;
  params.yarn_orig_ctx = options.yarn_orig_ctx;
  params.offload_kqv = options.kv_offload;
  params.op_offload = options.op_offload;
}

std::string device_loop_obstacle(const ModelOptions& options) {
  if (!options.loras.empty()) return "a LoRA adapter is in use";
  if (!options.kv_offload) return "the KV cache is not on the GPU";
  if (!options.tensor_overrides.empty()) return "tensors were placed by hand";
  if (options.split_mode == LLAMA_SPLIT_MODE_ROW || options.split_mode == LLAMA_SPLIT_MODE_TENSOR) {
    return "layers are split between devices";
  }
  return "";
}

}  // namespace unpaced
