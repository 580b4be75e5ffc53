#include "model/memory_plan.h"

// Of llama.cpp's sources: no public header says what a context takes.
#include <llama-ext.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "backend/cpu_backend.h"
#include "log/log_sink.h"
#include "model/decode_loop.h"
#include "model/loop_memory.h"
#include "model/model.h"

namespace unpaced {
namespace {

[[noreturn]] void throw_plan_error(const std::string& path) {
  const std::string logged = ErrorCapture::take();
  throw std::runtime_error("cannot read model " + path + (logged.empty() ? "" : ": " + logged));
}

MemoryUse use_of(ggml_backend_buffer_type_t type, const llama_memory_breakdown_data& data) {
  MemoryUse use;
  use.buffer_type = ggml_backend_buft_name(type);
  use.is_host = ggml_backend_buft_is_host(type);
  const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  if (!use.is_host && device != nullptr) {
    use.device = ggml_backend_dev_description(device);
    use.device_name = ggml_backend_dev_name(device);
  }
  use.model_bytes = data.model;
  use.context_bytes = data.context;
  use.compute_bytes = data.compute;
  return use;
}

#ifdef UNPACED_CUDA
constexpr bool kHasLoop = true;
#else
constexpr bool kHasLoop = false;
#endif

// The device whose loop would serve this plan, as far as can be told without loading; null: none.
MemoryUse* device_of_loop(MemoryPlan& plan, const EngineConfig& config) {
  if (!kHasLoop || config.decode_loop == static_cast<std::int32_t>(DecodeLoop::kHost) ||
      config.n_gpu_layers == 0 || !device_loop_obstacle(config.options).empty()) {
    return nullptr;
  }
  MemoryUse* device = nullptr;
  for (MemoryUse& use : plan.uses) {
    if (use.is_host && use.model_bytes + use.context_bytes == 0) continue;
    if (!use.device_name.starts_with("CUDA") || device != nullptr) return nullptr;
    device = &use;
  }
  return device;
}

// LoopShape::cell_copy_bytes.
std::size_t cell_copy_bytes(const llama_model* model, const EngineConfig& config) {
  const auto is_quantised = [](std::int32_t type) {
    return ggml_is_quantized(static_cast<ggml_type>(type));
  };
  const std::size_t n_halves = (is_quantised(config.cache_type_k) ? 1 : 0) +  // K, V
                               (is_quantised(config.cache_type_v) ? 1 : 0);
  // Few models have larger heads than their rows divided by their number, and those have 128.
  const std::int32_t head = llama_model_n_embd(model) / std::max(1, llama_model_n_head(model));
  return n_halves * sizeof(ggml_fp16_t) * static_cast<std::size_t>(std::max(128, head)) *
         static_cast<std::size_t>(llama_model_n_head_kv(model));
}

void add_loop(MemoryPlan& plan, const EngineConfig& config, const llama_model* model) {
  MemoryUse* device = device_of_loop(plan, config);
  if (device == nullptr) return;
  const std::int32_t n_streams = config.kv_unified ? 1 : config.n_slots;
  const std::int32_t n_lanes = std::min(config.n_lanes, config.n_slots);
  const bool has_own = config.kernels != static_cast<std::int32_t>(StepKernels::kGgml);
  // More are ggml's.
  const std::int32_t n_own_rows = std::min(n_lanes, kMaxOwnRows);
  const LoopMemory loop =
      loop_memory({.n_layer = plan.n_layer,
                   .n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model)),
                   .n_cells = static_cast<std::int32_t>(plan.n_ctx) / std::max(1, n_streams),
                   .n_streams = n_streams,
                   .n_lanes = n_lanes,
                   .has_prompts = has_own,
                   .n_own_rows = has_own ? n_own_rows : 0,
                   .n_embd = llama_model_n_embd(model),
                   .rows_as_alone = config.deterministic,
                   .cell_copy_bytes = cell_copy_bytes(model, config)});
  device->loop_bytes = loop.device;
  for (MemoryUse& use : plan.uses) {
    if (!use.is_host) continue;
    use.loop_bytes = loop.host;
    break;
  }
}

}  // namespace

MemoryPlan plan_memory(const EngineConfig& config) {
  const ErrorCapture capture;
  init_backends();
  ModelParams made(config.options, config.n_gpu_layers);
  made.params.no_alloc = true;
  made.params.load_mode = LLAMA_LOAD_MODE_NONE;
  const std::unique_ptr<llama_model, LlamaModelDeleter> model(
      llama_model_load_from_file(config.model_path.c_str(), made.params));
  if (!model) throw_plan_error(config.model_path);
  const std::unique_ptr<llama_context, LlamaContextDeleter> context(
      llama_init_from_model(model.get(), make_context_params(config, model.get())));
  if (!context) throw_plan_error(config.model_path);
  MemoryPlan plan;
  for (const auto& [type, data] : llama_get_memory_breakdown(context.get())) {
    if (data.total() > 0) plan.uses.push_back(use_of(type, data));
  }
  plan.n_ctx = llama_n_ctx(context.get());
  plan.n_ctx_slot = llama_n_ctx_seq(context.get());
  plan.n_ctx_train = static_cast<std::uint32_t>(llama_model_n_ctx_train(model.get()));
  plan.n_layer = llama_model_n_layer(model.get());
  plan.n_params = llama_model_n_params(model.get());
  char description[256] = {};
  llama_model_desc(model.get(), description, sizeof(description));
  plan.description = description;
  add_loop(plan, config, model.get());
  return plan;
}

std::vector<DeviceInfo> list_devices() {
  init_backends();
  std::vector<DeviceInfo> devices;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) continue;
    DeviceInfo info;
    info.name = ggml_backend_dev_name(device);
    info.description = ggml_backend_dev_description(device);
    info.is_card = ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU;
    ggml_backend_dev_memory(device, &info.free_bytes, &info.total_bytes);
    devices.push_back(std::move(info));
  }
  return devices;
}

}  // namespace unpaced
