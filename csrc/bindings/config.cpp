// What the engine is started with.
#include "bindings/python.h"
#include "model/engine_config.h"

namespace unpaced {
namespace {

void bind_model_options(nb::module_& m) {
  using O = ModelOptions;
  nb::class_<O>(m, "ModelOptions")
      .def(nb::init<>())
      .def_rw("load_mode", &O::load_mode)
      .def_rw("lazy_mode", &O::lazy_mode)
      .def_rw("kv_overrides", &O::kv_overrides)
      .def_rw("devices", &O::devices)
      .def_rw("tensor_overrides", &O::tensor_overrides)
      .def_rw("split_mode", &O::split_mode)
      .def_rw("tensor_split", &O::tensor_split)
      .def_rw("main_gpu", &O::main_gpu)
      .def_rw("repack", &O::repack)
      .def_rw("no_host", &O::no_host)
      .def_rw("op_offload", &O::op_offload)
      .def_rw("kv_offload", &O::kv_offload)
      .def_rw("rope_scaling", &O::rope_scaling)
      .def_rw("rope_freq_base", &O::rope_freq_base)
      .def_rw("rope_freq_scale", &O::rope_freq_scale)
      .def_rw("yarn_ext_factor", &O::yarn_ext_factor)
      .def_rw("yarn_attn_factor", &O::yarn_attn_factor)
      .def_rw("yarn_beta_fast", &O::yarn_beta_fast)
      .def_rw("yarn_beta_slow", &O::yarn_beta_slow)
      .def_rw("yarn_orig_ctx", &O::yarn_orig_ctx)
      .def_rw("loras", &O::loras)
      .def_rw("numa", &O::numa)
      .def_rw("priority", &O::priority)
      .def_rw("poll_batch", &O::poll_batch);
}

}  // namespace

void bind_config(nb::module_& m) {
  bind_model_options(m);
  nb::class_<EngineConfig>(m, "EngineConfig")
      .def(nb::init<>())
      .def_rw("model_path", &EngineConfig::model_path)
      .def_rw("options", &EngineConfig::options)
      .def_rw("n_ctx", &EngineConfig::n_ctx)
      .def_rw("fit", &EngineConfig::fit)
      .def_rw("fit_margins", &EngineConfig::fit_margins)
      .def_rw("fit_n_ctx_min", &EngineConfig::fit_n_ctx_min)
      .def_rw("fit_host_bytes", &EngineConfig::fit_host_bytes)
      .def_rw("n_batch", &EngineConfig::n_batch)
      .def_rw("n_ubatch", &EngineConfig::n_ubatch)
      .def_rw("prefill_budget", &EngineConfig::prefill_budget)
      .def_rw("max_itl_us", &EngineConfig::max_itl_us)
      .def_rw("n_slots", &EngineConfig::n_slots)
      .def_rw("kv_unified", &EngineConfig::kv_unified)
      .def_rw("deterministic", &EngineConfig::deterministic)
      .def_rw("context_shift", &EngineConfig::context_shift)
      .def_rw("slot_similarity", &EngineConfig::slot_similarity)
      .def_rw("cache_bytes_max", &EngineConfig::cache_bytes_max)
      .def_rw("cache_idle_slots", &EngineConfig::cache_idle_slots)
      .def_rw("n_waiting_max", &EngineConfig::n_waiting_max)
      .def_rw("n_threads", &EngineConfig::n_threads)
      .def_rw("n_threads_batch", &EngineConfig::n_threads_batch)
      .def_rw("short_steps_alone", &EngineConfig::short_steps_alone)
      .def_rw("n_gpu_layers", &EngineConfig::n_gpu_layers)
      .def_rw("decode_loop", &EngineConfig::decode_loop)
      .def_rw("kernels", &EngineConfig::kernels)
      .def_rw("kernel_choices", &EngineConfig::kernel_choices)
      .def_rw("n_lanes", &EngineConfig::n_lanes)
      .def_rw("require_device", &EngineConfig::require_device)
      .def_rw("flash_attn", &EngineConfig::flash_attn)
      .def_rw("cache_type_k", &EngineConfig::cache_type_k)
      .def_rw("cache_type_v", &EngineConfig::cache_type_v)
      .def_rw("check_tensors", &EngineConfig::check_tensors)
      .def_rw("warmup", &EngineConfig::warmup)
      .def_rw("wake_interval_us", &EngineConfig::wake_interval_us)
      .def_rw("stall_us", &EngineConfig::stall_us)
      .def_rw("abort_grace_us", &EngineConfig::abort_grace_us)
      .def_rw("poll", &EngineConfig::poll)
      .def_rw("decode_cores", &EngineConfig::decode_cores)
      .def_rw("worker_cores", &EngineConfig::worker_cores);
}

}  // namespace unpaced
