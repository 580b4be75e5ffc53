// What the engine is started with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/decode_loop.h"
#include "model/model_options.h"

namespace unpaced {

struct EngineConfig {
  std::string model_path;
  ModelOptions options;
  std::int32_t n_ctx = 0;  // cells of all slots together; 0: see `fit`
  // What is left open, an n_ctx of 0 and n_gpu_layers of -1, is chosen by fit_to_memory; else an
  // n_ctx of 0 is the model's training context for all slots together.
  bool fit = false;
  std::vector<std::int64_t> fit_margins;  // bytes to leave free, a device; the last for all others
  std::int32_t fit_n_ctx_min = 4096;      // a slot's
  std::int64_t fit_host_bytes = 0;        // free now
  std::int32_t n_batch = 2048;
  std::int32_t n_ubatch = 512;  // also the prefill chunk, after which commands are looked at
  // Prompt tokens that a step computes beside slots that decode, at most; 0: no fewer than without;
  // -1: 128 where the CPU alone computes and there is no other target, else 0.
  std::int32_t prefill_budget = -1;
  std::int64_t max_itl_us = 0;  // what such a step may take, as far as is known; 0: no target
  std::int32_t n_slots = 1;
  // All slots share the n_ctx cells, each may have them all; else each has its part.
  bool kv_unified = false;
  // A request's tokens do not hang on what else the engine computes, or has computed: each sequence
  // has a stream of the KV and batches of its own, prompts are computed in chunks of one size. Not
  // with kv_unified or context_shift.
  bool deterministic = false;
  bool context_shift = false;        // a full slot drops old tokens instead of ending the request
  float slot_similarity = 0.1F;      // see choose_slot
  std::int64_t cache_bytes_max = 0;  // see SlotKeeperOptions
  bool cache_idle_slots = true;      // likewise
  std::int32_t n_waiting_max = 64;
  std::int32_t n_threads = 1;
  std::int32_t n_threads_batch = 1;
  bool short_steps_alone = false;              // see ShortSteps
  std::int32_t n_gpu_layers = -1;              // below 0: all where there is a GPU
  std::int32_t decode_loop = kDecodeLoopAuto;  // or a DecodeLoop
  std::int32_t kernels = static_cast<std::int32_t>(StepKernels::kAuto);  // StepKernels
  std::string kernel_choices;     // the folder that keeps what kAuto has measured; empty: none
  std::int32_t n_lanes = 1;       // slots that the GPU's loop decodes together, at most
  bool require_device = false;    // anything less than the device loop is an error
  std::int32_t flash_attn = -1;   // llama_flash_attn_type: -1 auto, 0 off, 1 on
  std::int32_t cache_type_k = 1;  // ggml_type; 1 is F16
  std::int32_t cache_type_v = 1;
  bool check_tensors = false;
  bool warmup = true;
  std::int64_t wake_interval_us = 0;         // see DecodeThreadOptions
  std::int64_t stall_us = 0;                 // a GPU that is silent for longer is lost; 0: never
  std::int64_t abort_grace_us = 20'000'000;  // see DecodeThreadOptions
  std::uint32_t poll = 50;                   // ggml's workers: 0 sleep at once .. 100 spin
  std::vector<int> decode_cores;             // of the decode thread; empty: not pinned
  // Of each of ggml's workers in turn, then from the first again; empty: as the process.
  std::vector<std::vector<int>> worker_cores;
};

}  // namespace unpaced
