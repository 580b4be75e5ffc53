// A decode step, or a short prompt, of a real model on the CPU: its graph, with the memory as it
// was before the step, so that it can be made again.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "check.h"

namespace unpaced::test {

class RecordedStep {
 public:
  // After a prompt. type: of the cache. n_tokens: of the step; n_outputs: how many of them, the
  // last ones, have logits.
  RecordedStep(const std::string& path, ggml_type type, std::int32_t n_tokens = 1,
               std::int32_t n_outputs = 1) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    init_backends();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    model_params.use_extra_bufts = false;  // weights as in the file
    model_.reset(llama_model_load_from_file(path.c_str(), model_params));
    REQUIRE(model_ != nullptr);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_batch = params.n_ubatch = 128;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = type;
    params.cb_eval = &RecordedStep::see;
    params.cb_eval_user_data = this;
    context_.reset(llama_init_from_model(model_.get(), params));
    REQUIRE(context_ != nullptr);
    for (llama_token token = 5; token < 9; ++token) decode({token}, 1);
    std::vector<llama_token> tokens(static_cast<std::size_t>(n_tokens));
    std::iota(tokens.begin(), tokens.end(), 9);
    decode(tokens, n_outputs);
    const float* rows = llama_get_logits(context_.get());
    const llama_vocab* vocab = llama_model_get_vocab(model_.get());
    logits_.assign(rows, rows + std::ptrdiff_t{n_outputs} * llama_vocab_n_tokens(vocab));
  }

  [[nodiscard]] const std::vector<const ggml_tensor*>& nodes() const { return nodes_; }
  // Row by row.
  [[nodiscard]] const std::vector<float>& logits() const { return logits_; }

  struct Saved {
    ggml_backend_buffer_t buffer;
    std::vector<std::byte> bytes;
  };

  // As it was before the step.
  void restore() const { restore(before_); }
  static void restore(const Saved& saved) {
    std::memcpy(ggml_backend_buffer_get_base(saved.buffer), saved.bytes.data(), saved.bytes.size());
  }
  // The memory that the graph computes in, as it is now.
  [[nodiscard]] Saved save() const { return save(before_.buffer); }

 private:
  struct Freed {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  // Asked of every node in turn, before any is computed.
  static bool see(ggml_tensor* tensor, bool asks, void* self) {
    if (asks) static_cast<RecordedStep*>(self)->see(tensor);
    return false;
  }

  void see(const ggml_tensor* tensor) {
    if (nodes_.empty()) before_ = save(tensor->buffer);
    nodes_.push_back(tensor);
  }

  static Saved save(ggml_backend_buffer_t buffer) {
    const auto* base = static_cast<const std::byte*>(ggml_backend_buffer_get_base(buffer));
    return {buffer, {base, base + ggml_backend_buffer_get_size(buffer)}};
  }

  void decode(std::vector<llama_token> tokens, std::int32_t n_outputs) {
    nodes_.clear();
    const auto n = static_cast<std::int32_t>(tokens.size());
    std::vector<std::int8_t> has_logits(tokens.size(), 0);
    std::fill(has_logits.end() - n_outputs, has_logits.end(), std::int8_t{1});
    llama_batch batch = llama_batch_get_one(tokens.data(), n);
    batch.logits = has_logits.data();
    REQUIRE(llama_decode(context_.get(), batch) == 0);
  }

  std::unique_ptr<llama_model, Freed> model_;
  std::unique_ptr<llama_context, Freed> context_;
  std::vector<const ggml_tensor*> nodes_;
  Saved before_{};
  std::vector<float> logits_;
};

}  // namespace unpaced::test
