// What is known of the loaded model, as a dict.
#include <llama.h>

#include <array>

#include "bindings/py_engine.h"
#include "model/model.h"

namespace unpaced {
namespace {

nb::object bytes_or_none(const char* text) {
  return text == nullptr ? nb::object(nb::none()) : nb::object(nb::bytes(text));
}

}  // namespace

nb::dict model_info(PyEngine& self) {
  const llama_model* model = self.get().model();
  const llama_vocab* vocab = llama_model_get_vocab(model);
  std::array<char, 256> description{};
  llama_model_desc(model, description.data(), description.size());
  std::array<char, 256> name{};
  llama_model_meta_val_str(model, "general.name", name.data(), name.size());
  nb::list eog_tokens;
  for (std::int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    if (llama_vocab_is_eog(vocab, id)) eog_tokens.append(id);
  }
  nb::dict info;
  info["name"] = nb::bytes(name.data());
  info["description"] = nb::bytes(description.data());
  info["n_vocab"] = llama_vocab_n_tokens(vocab);
  info["vocab_type"] = static_cast<int>(llama_vocab_type(vocab));
  info["n_ctx"] = self.get().decode_thread().n_ctx();
  info["n_ctx_train"] = llama_model_n_ctx_train(model);
  info["n_embd"] = llama_model_n_embd(model);
  info["n_layer"] = llama_model_n_layer(model);
  info["n_params"] = llama_model_n_params(model);
  info["size_bytes"] = llama_model_size(model);
  info["ftype"] = llama_ftype_name(llama_model_ftype(model));
  info["bos"] = llama_vocab_bos(vocab);
  info["eos"] = llama_vocab_eos(vocab);
  info["eot"] = llama_vocab_eot(vocab);
  info["add_bos"] = llama_vocab_get_add_bos(vocab);
  std::int32_t n_suppressed = 0;
  const llama_token* suppressed = llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
  nb::list suppress_tokens;
  for (std::int32_t i = 0; i < n_suppressed; ++i) suppress_tokens.append(suppressed[i]);
  info["suppress_tokens"] = suppress_tokens;
  nb::dict sampling;
  for (int key = 0; key <= LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_ETA; ++key) {
    const char* name = llama_model_meta_key_str(static_cast<llama_model_meta_key>(key));
    std::array<char, 512> value{};
    if (llama_model_meta_val_str(model, name, value.data(), value.size()) > 0) {
      sampling[name] = nb::bytes(value.data());
    }
  }
  info["sampling_metadata"] = sampling;
  info["why_prefixes_are_not_shared"] = why_prefixes_are_not_shared(self.get().config(), model);
  info["add_eos"] = llama_vocab_get_add_eos(vocab);
  info["eog_tokens"] = eog_tokens;
  info["fim_prefix"] = llama_vocab_fim_pre(vocab);
  info["fim_suffix"] = llama_vocab_fim_suf(vocab);
  info["fim_middle"] = llama_vocab_fim_mid(vocab);
  info["fim_repo"] = llama_vocab_fim_rep(vocab);
  info["fim_separator"] = llama_vocab_fim_sep(vocab);
  info["chat_template"] = bytes_or_none(llama_model_chat_template(model, nullptr));
  info["chat_template_tool_use"] = bytes_or_none(llama_model_chat_template(model, "tool_use"));
  return info;
}

}  // namespace unpaced
