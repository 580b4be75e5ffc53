// A loaded model, its context and ggml's threads, as RAII. Made, used and destroyed on the decode
// thread; the vocabulary alone is read elsewhere too (it is constant after loading).
#pragma once

#include <llama.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "decode/counters.h"
#include "model/engine_config.h"
#include "model/lora_adapters.h"
#include "model/worker_threads.h"

namespace unpaced {

struct LlamaModelDeleter {
  void operator()(llama_model* model) const noexcept { llama_model_free(model); }
};
struct LlamaContextDeleter {
  void operator()(llama_context* context) const noexcept { llama_free(context); }
};

// How far a load is; written by the decode thread, read by any.
struct LoadProgress {
  std::atomic<float> fraction{0.0F};  // 0 .. 1
};

// llama.cpp's parameters for the engine's context, without callbacks.
[[nodiscard]] llama_context_params make_context_params(const EngineConfig& config,
                                                       const llama_model* model);
// Why slots do not share the cells of common prefixes; empty: they do.
[[nodiscard]] std::string why_prefixes_are_not_shared(const EngineConfig& config,
                                                      const llama_model* model);

class Model {
 public:
  // Throws std::runtime_error with one sentence that names the file. `stop` ends a load early.
  Model(const EngineConfig& config, LoadProgress& progress, const std::atomic<bool>& stop);

  [[nodiscard]] llama_model* get() const noexcept { return model_.get(); }
  [[nodiscard]] llama_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] const llama_vocab* vocab() const noexcept { return vocab_; }
  [[nodiscard]] std::int32_t n_vocab() const noexcept { return n_vocab_; }
  // Cells of one slot: what its sequence may hold, never more than the model was trained for.
  [[nodiscard]] std::int32_t n_ctx_slot() const noexcept { return n_ctx_slot_; }
  // Same for two loads of one model with the same KV types, positions and adapters, different else:
  // a hash of the model's metadata and of these.
  [[nodiscard]] std::uint64_t identity() const noexcept { return identity_; }
  // True if a full slot makes room instead of ending its request.
  [[nodiscard]] bool shifts_context() const noexcept { return shifts_context_; }
  // True if cells can be given other positions.
  [[nodiscard]] bool can_shift() const noexcept { return can_shift_; }
  [[nodiscard]] bool adds_bos() const noexcept { return llama_vocab_get_add_bos(vocab_); }
  // Of one card or of several, one sentence; empty: there was none to be made.
  [[nodiscard]] const std::string& card_choice() const noexcept { return card_choice_; }
  // One scale for each of ModelOptions::loras, in force from the next step on.
  void set_lora_scales(std::span<const float> scales) { loras_.apply(context_.get(), scales); }
  // See WorkerThreads.
  void take_priority() const { threads_.take_priority(); }
  void rest_workers() const noexcept { threads_.rest(); }
  void let_compute_alone(bool alone) { threads_.let_compute_alone(context_.get(), alone); }
  // Counts the nodes of graphs that the CPU begins, on the thread that calls llama_decode.
  void count_nodes(Counter& n_nodes) noexcept { n_nodes_ = &n_nodes; }
  [[nodiscard]] bool is_eog(TokenId token) const noexcept {
    return eog_[static_cast<std::size_t>(token)] != 0;
  }

 private:
  // Called by ggml before each node that the CPU computes. True: the computation ends here.
  static bool on_node(void* self);
  void load(const EngineConfig& config, LoadProgress& progress);
  void make_context(const EngineConfig& config);
  void warm_up();

  const std::atomic<bool>& stop_;
  Counter* n_nodes_ = nullptr;
  // Destroyed in reverse: context, threads, model.
  std::unique_ptr<llama_model, LlamaModelDeleter> model_;
  WorkerThreads threads_;
  std::unique_ptr<llama_context, LlamaContextDeleter> context_;
  LoraAdapters loras_;
  const llama_vocab* vocab_ = nullptr;
  std::int32_t n_vocab_ = 0;
  std::int32_t n_ctx_slot_ = 0;
  std::uint64_t identity_ = 0;
  std::string card_choice_;
  bool can_shift_ = false;
  bool shifts_context_ = false;
  std::vector<std::uint8_t> eog_;
};

}  // namespace unpaced
