#include "model/model.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "kept/llama_cell_store.h"
#include "log/log_sink.h"
#include "model/card_choice.h"
#include "request/prompt_logprob_rows.h"

namespace unpaced {
namespace {

[[noreturn]] void throw_load_error(const std::string& what, const std::string& path) {
  const std::string logged = ErrorCapture::take();
  throw std::runtime_error(what + " " + path + (logged.empty() ? "" : ": " + logged));
}

struct Loading {
  LoadProgress& progress;
  const std::atomic<bool>& stop;
};

// False: the load ends here.
bool on_load_progress(float fraction, void* user) {
  const auto* loading = static_cast<const Loading*>(user);
  loading->progress.fraction.store(fraction, std::memory_order_relaxed);
  // acquire: pairs with DecodeThread::stop().
  return !loading->stop.load(std::memory_order_acquire);
}

// FNV-1a.
std::uint64_t identity_of(const llama_model* model, const EngineConfig& config) {
  std::string text;
  const auto add = [&text](const auto& value) { text += std::to_string(value) + ';'; };
  std::array<char, 512> value{};
  for (std::int32_t i = 0; i < llama_model_meta_count(model); ++i) {
    llama_model_meta_key_by_index(model, i, value.data(), value.size());
    text.append(value.data()).push_back('=');
    llama_model_meta_val_str_by_index(model, i, value.data(), value.size());
    text.append(value.data()).push_back(';');
  }
  add(llama_model_n_params(model));
  add(llama_model_size(model));
  add(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  add(config.cache_type_k);
  add(config.cache_type_v);
  // What changes the cells without changing the file.
  const ModelOptions& options = config.options;
  for (const std::string& entry : options.kv_overrides) text += entry + ';';
  for (const auto& [path, scale] : options.loras) {
    text += path + '*';
    add(scale);
  }
  add(options.rope_scaling);
  for (const float factor :
       {options.rope_freq_base, options.rope_freq_scale, options.yarn_ext_factor,
        options.yarn_attn_factor, options.yarn_beta_fast, options.yarn_beta_slow}) {
    add(factor);
  }
  add(options.yarn_orig_ctx);
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

Model::Model(const EngineConfig& config, LoadProgress& progress, const std::atomic<bool>& stop)
    : stop_(stop) {
  const PlacedConfig placed = place_model(config);
  if (!placed.fit.empty()) log_warning("to fit the memory (--fit), " + placed.fit);
  card_choice_ = placed.choice;
  const ErrorCapture capture;
  load(placed.config, progress);
  make_context(placed.config);
  threads_ = WorkerThreads(placed.config);
  threads_.attach(context_.get());
  if (config.warmup) warm_up();
  progress.fraction.store(1.0F, std::memory_order_relaxed);
}

void Model::load(const EngineConfig& config, LoadProgress& progress) {
  ModelParams made(config.options, config.n_gpu_layers);
  llama_model_params& params = made.params;
  params.check_tensors = config.check_tensors;
  params.progress_callback = on_load_progress;
  Loading loading{progress, stop_};
  params.progress_callback_user_data = &loading;
  model_.reset(llama_model_load_from_file(config.model_path.c_str(), params));
  if (!model_) throw_load_error("cannot load model", config.model_path);
  if (llama_model_has_encoder(model_.get()) || !llama_model_has_decoder(model_.get())) {
    throw std::runtime_error("cannot serve model " + config.model_path +
                             ": it is not a decoder-only text model");
  }
  vocab_ = llama_model_get_vocab(model_.get());
  n_vocab_ = llama_vocab_n_tokens(vocab_);
  if (n_vocab_ <= 0) throw_load_error("no vocabulary in model", config.model_path);
  identity_ = identity_of(model_.get(), config);
  eog_.resize(static_cast<std::size_t>(n_vocab_));
  for (std::int32_t id = 0; id < n_vocab_; ++id) {
    eog_[static_cast<std::size_t>(id)] = llama_vocab_is_eog(vocab_, id) ? 1 : 0;
  }
}

bool Model::on_node(void* self) {
  const auto* model = static_cast<const Model*>(self);
  if (model->n_nodes_ != nullptr) model->n_nodes_->add(1);
  // acquire: pairs with DecodeThread::stop().
  return model->stop_.load(std::memory_order_acquire);
}

llama_context_params make_context_params(const EngineConfig& config, const llama_model* model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(config.n_ctx);
  params.n_batch = static_cast<std::uint32_t>(config.n_batch);
  params.n_ubatch = static_cast<std::uint32_t>(std::min(config.n_batch, config.n_ubatch));
  params.n_seq_max = static_cast<std::uint32_t>(config.n_slots);
  params.kv_unified = config.kv_unified;
  params.n_outputs_max =
      static_cast<std::uint32_t>(std::min(config.n_batch, config.n_slots + kPromptLogprobRows));
  params.n_threads = config.n_threads;
  params.n_threads_batch = config.n_threads_batch;
  params.flash_attn_type = static_cast<llama_flash_attn_type>(config.flash_attn);
  params.type_k = static_cast<ggml_type>(config.cache_type_k);
  params.type_v = static_cast<ggml_type>(config.cache_type_v);
  params.no_perf = true;
  // One slot shares its cells with nobody, either way. What is parked lies where the slot's next
  // cells would be.
  const bool may_park = !config.deterministic &&
                        (config.n_slots == 1 ? config.cache_bytes_max != 0 : config.kv_unified);
  const std::int32_t n_parked = may_park ? LlamaCellStore::n_sequences(model, config.n_slots) : 0;
  const std::uint32_t n_sequences = params.n_seq_max + static_cast<std::uint32_t>(n_parked);
  if (n_parked > 0 && n_sequences <= params.n_ubatch) {
    params.n_seq_max = n_sequences;
    // llama.cpp has a row of logits ready for each of them, and ends the process if that are more.
    params.n_outputs_max = std::max(params.n_outputs_max, n_sequences);
    params.kv_unified = true;
  }
  apply_context_options(config.options, params);
  return params;
}

std::string why_prefixes_are_not_shared(const EngineConfig& config, const llama_model* model) {
  if (config.n_slots == 1) return "there is one slot";
  if (!config.kv_unified) return "each slot has cells of its own (--kv-unified shares them)";
  if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model)) {
    return "the model's recurrent state cannot be cut at a token";
  }
  if (llama_model_n_swa(model) > 0) return "the model's sliding window drops cells of a prefix";
  const std::uint32_t n_sequences = make_context_params(config, model).n_seq_max;
  if (n_sequences > static_cast<std::uint32_t>(config.n_slots)) return "";
  return "so many slots leave no sequences for it (at most a third of 256, or of --ubatch-size)";
}

void Model::make_context(const EngineConfig& config) {
  llama_context_params params = make_context_params(config, model_.get());
  params.abort_callback = on_node;
  params.abort_callback_data = this;
  context_.reset(llama_init_from_model(model_.get(), params));
  if (!context_) throw_load_error("cannot make a context for model", config.model_path);
  loras_ = LoraAdapters(model_.get(), config.options.loras);
  set_lora_scales(config.options.lora_scales());
  n_ctx_slot_ = std::min(static_cast<std::int32_t>(llama_n_ctx_seq(context_.get())),
                         llama_model_n_ctx_train(model_.get()));
  can_shift_ = llama_memory_can_shift(llama_get_memory(context_.get()));
  shifts_context_ = config.context_shift && can_shift_;
}

void Model::warm_up() {
  llama_token token = llama_vocab_bos(vocab_);
  if (token < 0 || token >= n_vocab_) token = 0;
  // Twice: the first builds the single-token graph, the second reuses it.
  for (int i = 0; i < 2; ++i) {
    if (llama_decode(context_.get(), llama_batch_get_one(&token, 1)) != 0 && !stop_.load()) {
      throw_load_error("the model's first step failed", "");
    }
    llama_synchronize(context_.get());
  }
  llama_memory_clear(llama_get_memory(context_.get()), true);
}

}  // namespace unpaced
