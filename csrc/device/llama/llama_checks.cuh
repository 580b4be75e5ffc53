// Where a model lies, and what of it the loop cannot serve. llama_inside.cuh alone includes it.
#pragma once

#include "device/llama/llama_bridge.h"
#include "device/llama/llama_internals.cuh"

namespace unpaced {
namespace {

[[noreturn]] void refuse(const std::string& reason) { throw std::runtime_error(reason); }

// visit(tensor, where it lies) for the weights and the KV.
template <class Visit>
void for_each_held(const llama_context* context, const Visit& visit) {
  const auto look = [&](const ggml_tensor* tensor) {
    if (tensor == nullptr || tensor->buffer == nullptr) return;
    visit(tensor, ggml_backend_buffer_get_type(tensor->buffer));
  };
  for (const auto& [name, tensor] : context->get_model().tensors_by_name) look(tensor);
  const auto* cache = dynamic_cast<const llama_kv_cache*>(context->get_memory());
  if (cache == nullptr) return;
  for (const auto& layer : cache->layers) look(layer.k), look(layer.v);
}

// Null: the host's memory.
ggml_backend_dev_t gpu_of(ggml_backend_buffer_type_t type) {
  const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  if (device == nullptr || ggml_backend_buft_is_host(type)) return nullptr;
  const auto kind = ggml_backend_dev_type(device);
  const bool is_gpu = kind == GGML_BACKEND_DEVICE_TYPE_GPU || kind == GGML_BACKEND_DEVICE_TYPE_IGPU;
  return is_gpu ? device : nullptr;
}

// The GPUs that have weights or KV, in the order of their names.
std::vector<ggml_backend_dev_t> gpus_of(const llama_context* context) {
  std::map<std::string, ggml_backend_dev_t> found;
  for_each_held(context, [&](const ggml_tensor*, ggml_backend_buffer_type_t type) {
    const ggml_backend_dev_t device = gpu_of(type);
    if (device != nullptr) found[ggml_backend_dev_name(device)] = device;
  });
  std::vector<ggml_backend_dev_t> gpus;
  for (const auto& [name, device] : found) gpus.push_back(device);
  return gpus;
}

// Weights and KV that are on no GPU, and which GPUs have the others.
void list_places(const llama_context* context, Residency& found) {
  for (const ggml_backend_dev_t device : gpus_of(context)) {
    found.cards.emplace_back(ggml_backend_dev_name(device));
  }
  for_each_held(context, [&](const ggml_tensor* tensor, ggml_backend_buffer_type_t type) {
    if (gpu_of(type) != nullptr) return;
    ++found.n_elsewhere;
    found.bytes_elsewhere += ggml_nbytes(tensor);
    if (found.elsewhere.size() < Residency::kMaxNamed) {
      found.elsewhere.push_back(std::string(tensor->name) + " (" + ggml_backend_buft_name(type) +
                                ")");
    }
  });
}

// CUDA's number of the one device that has all of the model that is on a GPU.
int cuda_index(const llama_context* context) {
  const std::vector<ggml_backend_dev_t> gpus = gpus_of(context);
  if (gpus.empty()) refuse("no weight is on a GPU");
  if (gpus.size() > 1) {
    std::string names;
    for (const ggml_backend_dev_t device : gpus) {
      names += (names.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(device));
    }
    refuse("the model is split between " + std::to_string(gpus.size()) + " cards (" + names + ")");
  }
  ggml_backend_reg_t cuda = ggml_backend_cuda_reg();
  for (std::size_t i = 0; i < ggml_backend_reg_dev_count(cuda); ++i) {
    if (ggml_backend_reg_dev_get(cuda, i) == gpus.front()) return static_cast<int>(i);
  }
  refuse(std::string("the model is on ") + ggml_backend_dev_name(gpus.front()) +
         ", which is no CUDA device");
}

void count_nodes(ggml_backend_sched_t scheduler, ggml_cgraph* graph, Residency& found) {
  found.nodes.clear();
  found.n_splits = ggml_backend_sched_get_n_splits(scheduler);
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_backend_t backend =
        ggml_backend_sched_get_tensor_backend(scheduler, ggml_graph_node(graph, i));
    ++found.nodes[backend == nullptr ? "none" : ggml_backend_name(backend)];
  }
}

// A tensor elsewhere would abort the process once the scheduler sees it.
void check_places(const llama_context* context, int index) {
  Residency found;
  list_places(context, found);
  if (found.n_elsewhere > 0) {
    refuse(std::to_string(found.n_elsewhere) + " weights or KV buffers (" +
           std::to_string(found.bytes_elsewhere >> 20U) + " MiB) are not on the GPU: " +
           found.elsewhere.front() + (found.n_elsewhere > 1 ? " and others" : ""));
  }
  const ggml_backend_buffer_type_t plain = ggml_backend_cuda_buffer_type(index);
  for_each_held(context, [&](const ggml_tensor* tensor, ggml_backend_buffer_type_t type) {
    if (type == plain) return;
    refuse(std::string(tensor->name) +
           " is in memory of another kind: " + ggml_backend_buft_name(type));
  });
}

void check_model(const llama_context* context, const llama_kv_cache& cache, int index) {
  const llama_hparams& hparams = context->get_model().hparams;
  const llama_cparams& cparams = context->get_cparams();
  if (cache.swa_type != LLAMA_SWA_TYPE_NONE || hparams.swa_type != LLAMA_SWA_TYPE_NONE) {
    refuse("the model has sliding-window attention");
  }
  if (cache.other != nullptr) refuse("the KV cache belongs to another context");
  if (!cparams.flash_attn) refuse("flash attention is off");
  if (!cparams.causal_attn) refuse("attention is not causal");
  if (cparams.embeddings) refuse("the context makes embeddings");
  if (hparams.use_alibi) refuse("the model has ALiBi positions");
  if (hparams.n_pos_per_embd() != 1) refuse("the model has several positions a token");
  if (context->loras != nullptr && !context->loras->empty()) refuse("LoRA adapters are loaded");
  if (!context->sampling.samplers.empty()) refuse("the context samples by itself");
  const char* reorder = std::getenv("GGML_CUDA_GRAPH_OPT");
  if (reorder != nullptr && std::atoi(reorder) != 0) {
    refuse("GGML_CUDA_GRAPH_OPT is set: it reorders nodes and gave wrong tokens");
  }
  check_places(context, index);
  if (!ggml_cuda_info().devices[index].vmm) refuse("the device has no virtual memory management");
}

}  // namespace
}  // namespace unpaced
