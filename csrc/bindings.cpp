// The Python face of the native code: the only file that includes nanobind, and thin. Every call
// that can take time releases the GIL.
#include <ggml.h>
#include <llama.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_format.h"
#include "cpu_affinity.h"
#include "engine.h"
#include "grammar/grammar_engine.h"
#include "log_sink.h"
#include "memory_fit.h"
#include "memory_plan.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace unpaced {
namespace {

// What Python sees of a TokenEvent: the record, and the alternatives that came before it.
struct PyTokenEvent {
  TokenEvent record;
  std::vector<TokenLogprob> alternatives;
};

nb::list alternatives_of(const PyTokenEvent& event) {
  nb::list pairs;
  for (const TokenLogprob& pair : event.alternatives) {
    pairs.append(nb::make_tuple(pair.token, pair.logprob));
  }
  return pairs;
}

// The engine plus what the Python side of the token ring needs.
class PyEngine {
 public:
  explicit PyEngine(const EngineConfig& config) : engine_(config) {}

  Engine& get() noexcept { return engine_; }

  // Everything that is in the ring now.
  nb::list drain() {
    nb::list events;
    for (;;) {
      const std::size_t n = engine_.drain(buffer_.data(), buffer_.size());
      for (std::size_t i = 0; i < n; ++i) append(events, buffer_[i]);
      if (n < buffer_.size()) return events;
    }
  }

  // Announces that the reader will sleep. False: there is news, drain first.
  bool park() noexcept {
    DecodeThread& thread = engine_.decode_thread();
    thread.reader_wakeup().prepare_park();
    if (thread.n_events_approx() == 0) return true;
    thread.reader_wakeup().cancel_park();
    return false;
  }

 private:
  void append(nb::list& events, const TokenEvent& record) {
    if (record.kind == EventKind::kLogprobs) {
      // A slot's alternatives directly precede the event they belong to.
      alternatives_.insert(alternatives_.end(), record.logprobs.pair,
                           record.logprobs.pair + record.logprobs.n_pairs);
      return;
    }
    events.append(PyTokenEvent{record, std::exchange(alternatives_, {})});
  }

  Engine engine_;
  std::array<TokenEvent, 256> buffer_{};
  std::vector<TokenLogprob> alternatives_;
};

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::list token_pieces(PyEngine& self, bool special) {
  const TokenPieces& all = self.get().token_pieces(special);
  nb::list pieces;
  for (TokenId id = 0; id < all.size(); ++id) {
    pieces.append(nb::bytes(all[id].data(), all[id].size()));
  }
  return pieces;
}

nb::object bytes_or_none(const char* text) {
  return text == nullptr ? nb::object(nb::none()) : nb::object(nb::bytes(text));
}

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

nb::dict counters(PyEngine& self) {
  const Counters& c = self.get().decode_thread().counters();
  nb::dict values;
  values["n_steps"] = c.n_steps.get();
  values["n_busy_slots"] = c.n_busy_slots.get();
  values["n_tokens_decoded"] = c.n_tokens_decoded.get();
  values["n_tokens_device"] = c.n_tokens_device.get();
  values["n_tokens_prompt"] = c.n_tokens_prompt.get();
  values["n_tokens_cached"] = c.n_tokens_cached.get();
  values["n_requests_started"] = c.n_requests_started.get();
  values["n_requests_finished"] = c.n_requests_finished.get();
  values["n_requests_cancelled"] = c.n_requests_cancelled.get();
  values["n_requests_failed"] = c.n_requests_failed.get();
  nb::dict by_reason;
  for (std::size_t i = 1; i < kHostReasons; ++i) {
    by_reason[kHostReasonNames[i]] = c.n_requests_host[i].get();
  }
  values["n_requests_host"] = by_reason;
  values["n_window_graphs"] = c.n_window_graphs.get();
  values["n_slots_active"] = c.n_slots_active.get();
  values["n_waiting"] = c.n_waiting.get();
  values["n_cache_bytes"] = c.n_cache_bytes.get();
  values["n_cache_states"] = c.n_cache_states.get();
  values["n_ring_full"] = c.n_ring_full.get();
  values["n_event_writes"] = self.get().decode_thread().reader_wakeup().n_writes();
  return values;
}

nb::dict decode_loop(PyEngine& self) {
  const DecodeLoopReport& report = self.get().decode_loop();
  nb::dict info;
  info["loop"] = static_cast<int>(report.loop);
  info["reason"] = report.reason;
  info["device"] = report.device;
  nb::dict memory;
  for (const auto& [name, use] : report.residency.memory) {
    nb::dict bytes;
    bytes["weights"] = use.weights;
    bytes["kv"] = use.kv;
    bytes["compute"] = use.compute;
    memory[name.c_str()] = bytes;
  }
  nb::dict nodes;
  for (const auto& [name, n] : report.residency.nodes) nodes[name.c_str()] = n;
  nb::list elsewhere;
  for (const std::string& tensor : report.residency.elsewhere) elsewhere.append(tensor);
  info["memory_bytes"] = memory;
  info["elsewhere"] = elsewhere;
  info["n_elsewhere"] = report.residency.n_elsewhere;
  info["n_graph_nodes"] = nodes;
  info["n_graph_splits"] = report.residency.n_splits;
  return info;
}

// nanobind's own conversion to std::string is for str.
std::vector<std::string> to_strings(const nb::list& texts) {
  std::vector<std::string> strings;
  for (const nb::handle text : texts) strings.emplace_back(view(nb::cast<nb::bytes>(text)));
  return strings;
}

// Stop strings beyond this are looked for on the host only: listing their tokens takes 0.1 s.
constexpr std::size_t kMaxListedStopWords = 64;

// As Python holds them: shared by the requests that have the same.
struct PyStopStrings {
  std::shared_ptr<const StopStrings> stops;
  // Only where the GPU may run the loop.
  std::shared_ptr<const std::vector<std::uint32_t>> completing_tokens;
};

PyStopStrings compile_stops(std::shared_ptr<const StopStrings> stops, bool for_device) {
  PyStopStrings made{.stops = std::move(stops), .completing_tokens = nullptr};
  if (for_device && made.stops->n_words() <= kMaxListedStopWords) {
    made.completing_tokens =
        std::make_shared<const std::vector<std::uint32_t>>(made.stops->completing_tokens());
  }
  return made;
}

void set_chain(SamplingParams& params, const std::vector<int>& chain) {
  if (chain.size() > static_cast<std::size_t>(kMaxChainLength)) {
    throw nb::value_error("samplers: too many");
  }
  params.n_chain = static_cast<std::int32_t>(chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain[i] < 0 || chain[i] > static_cast<int>(SamplerKind::kInfill)) {
      throw nb::value_error("samplers: unknown kind");
    }
    params.chain[i] = static_cast<SamplerKind>(chain[i]);
  }
}

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
      .def_rw("strict_cpu", &O::strict_cpu)
      .def_rw("poll_batch", &O::poll_batch);
}

nb::dict plan_to_dict(const EngineConfig& config) {
  MemoryPlan plan;
  std::string change;
  {
    const nb::gil_scoped_release release;
    const FittedConfig fitted = fit_to_memory(config);
    change = fitted.change;
    plan = plan_memory(fitted.config);
  }
  nb::list uses;
  for (const MemoryUse& use : plan.uses) {
    nb::dict entry;
    entry["buffer_type"] = use.buffer_type;
    entry["device"] = use.device;
    entry["is_host"] = use.is_host;
    entry["model_bytes"] = use.model_bytes;
    entry["context_bytes"] = use.context_bytes;
    entry["compute_bytes"] = use.compute_bytes;
    uses.append(entry);
  }
  nb::dict made;
  made["uses"] = uses;
  made["n_ctx"] = plan.n_ctx;
  made["n_ctx_slot"] = plan.n_ctx_slot;
  made["n_ctx_train"] = plan.n_ctx_train;
  made["n_layer"] = plan.n_layer;
  made["n_params"] = plan.n_params;
  made["description"] = plan.description;
  made["fit"] = change;
  return made;
}

nb::list devices_to_list() {
  nb::list devices;
  for (const DeviceInfo& info : list_devices()) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["description"] = info.description;
    entry["free_bytes"] = info.free_bytes;
    entry["total_bytes"] = info.total_bytes;
    devices.append(entry);
  }
  return devices;
}

void bind_config(nb::module_& m) {
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
      .def_rw("n_slots", &EngineConfig::n_slots)
      .def_rw("kv_unified", &EngineConfig::kv_unified)
      .def_rw("context_shift", &EngineConfig::context_shift)
      .def_rw("slot_similarity", &EngineConfig::slot_similarity)
      .def_rw("cache_bytes_max", &EngineConfig::cache_bytes_max)
      .def_rw("cache_idle_slots", &EngineConfig::cache_idle_slots)
      .def_rw("n_waiting_max", &EngineConfig::n_waiting_max)
      .def_rw("n_threads", &EngineConfig::n_threads)
      .def_rw("n_threads_batch", &EngineConfig::n_threads_batch)
      .def_rw("n_gpu_layers", &EngineConfig::n_gpu_layers)
      .def_rw("decode_loop", &EngineConfig::decode_loop)
      .def_rw("require_device", &EngineConfig::require_device)
      .def_rw("flash_attn", &EngineConfig::flash_attn)
      .def_rw("cache_type_k", &EngineConfig::cache_type_k)
      .def_rw("cache_type_v", &EngineConfig::cache_type_v)
      .def_rw("check_tensors", &EngineConfig::check_tensors)
      .def_rw("warmup", &EngineConfig::warmup)
      .def_rw("wake_interval_us", &EngineConfig::wake_interval_us)
      .def_rw("poll", &EngineConfig::poll)
      .def_rw("decode_cores", &EngineConfig::decode_cores)
      .def_rw("worker_cores", &EngineConfig::worker_cores);
}

void bind_request(nb::module_& m) {
  nb::class_<SamplingParams>(m, "SamplingParams")
      .def(nb::init<>())
      .def_rw("seed", &SamplingParams::seed)
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("dynatemp_range", &SamplingParams::dynatemp_range)
      .def_rw("dynatemp_exponent", &SamplingParams::dynatemp_exponent)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("typical_p", &SamplingParams::typical_p)
      .def_rw("top_n_sigma", &SamplingParams::top_n_sigma)
      .def_rw("xtc_probability", &SamplingParams::xtc_probability)
      .def_rw("xtc_threshold", &SamplingParams::xtc_threshold)
      .def_rw("repeat_last_n", &SamplingParams::repeat_last_n)
      .def_rw("repeat_penalty", &SamplingParams::repeat_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("dry_multiplier", &SamplingParams::dry_multiplier)
      .def_rw("dry_base", &SamplingParams::dry_base)
      .def_rw("dry_allowed_length", &SamplingParams::dry_allowed_length)
      .def_rw("dry_penalty_last_n", &SamplingParams::dry_penalty_last_n)
      .def_rw("mirostat", &SamplingParams::mirostat)
      .def_rw("mirostat_tau", &SamplingParams::mirostat_tau)
      .def_rw("mirostat_eta", &SamplingParams::mirostat_eta)
      .def_rw("adaptive_p", &SamplingParams::adaptive_p)
      .def_rw("adaptive_target", &SamplingParams::adaptive_target)
      .def_rw("adaptive_decay", &SamplingParams::adaptive_decay)
      .def_rw("min_keep", &SamplingParams::min_keep)
      .def("set_chain", &set_chain, "chain"_a);

  nb::class_<DryBreakers>(m, "DryBreakers").def(nb::init<>());

  nb::class_<InfillVocabulary>(m, "InfillVocabulary");

  nb::class_<PyStopStrings>(m, "StopStrings")
      .def(
          "__init__",
          [](PyStopStrings* self, const nb::list& pieces, const nb::list& stops) {
            auto made = std::make_shared<const TokenPieces>(to_strings(pieces));
            new (self) PyStopStrings(
                compile_stops(std::make_shared<const StopStrings>(
                                  TokenText{.pieces = made, .special = made, .spelled_out = {}},
                                  to_strings(stops)),
                              true));
          },
          "pieces"_a, "stops"_a,
          nb::sig("def __init__(self, pieces: list[bytes], stops: list[bytes]) -> None"))
      .def(
          "first_match",
          [](const PyStopStrings& self, const std::vector<TokenId>& tokens) {
            StopMatcher matcher(self.stops);
            for (std::size_t i = 0; i < tokens.size(); ++i) {
              if (matcher.accept(tokens[i]) > 0) return static_cast<int>(i);
            }
            return -1;
          },
          "tokens"_a)
      .def(
          "completes",
          [](const PyStopStrings& self, TokenId token) {
            if (self.completing_tokens == nullptr) {
              throw nb::value_error("no tokens were listed for these stop strings");
            }
            return (self.completing_tokens->at(static_cast<std::size_t>(token / 32)) >> token % 32 &
                    1U) != 0U;
          },
          "token"_a);

  nb::class_<TextLimits>(m, "TextLimits")
      .def(
          "__init__",
          [](TextLimits* self, const nb::list& pieces, std::int32_t n_indent,
             std::int64_t t_max_ms) {
            auto made = std::make_shared<const TokenPieces>(to_strings(pieces));
            new (self) TextLimits(TokenText{.pieces = made, .special = made, .spelled_out = {}},
                                  n_indent, t_max_ms);
          },
          "pieces"_a, "n_indent"_a, "t_max_ms"_a,
          nb::sig("def __init__(self, pieces: list[bytes], n_indent: int, t_max_ms: int) -> None"))
      .def(
          "first_end",
          [](TextLimits limits, const PyStopStrings& stops, const std::vector<TokenId>& tokens,
             const std::vector<std::int64_t>& times_us) {
            StopMatcher matcher(stops.stops);
            for (std::size_t i = 0; i < tokens.size(); ++i) {
              const std::size_t n_stop_bytes = matcher.accept(tokens[i]);
              const FinishReason reason =
                  limits.accept(tokens[i], {.n_stop_bytes = n_stop_bytes,
                                            .may_become_stop = matcher.may_become_stop(),
                                            .is_end = false,
                                            .now_us = times_us.at(i)});
              if (reason != FinishReason::kNone || n_stop_bytes > 0) {
                return std::tuple(static_cast<int>(i), static_cast<int>(reason), limits.cut_line());
              }
            }
            return std::tuple(-1, 0, -1);
          },
          "stops"_a, "tokens"_a, "times_us"_a);

  nb::class_<ReasoningBudget>(m, "ReasoningBudget")
      .def("end_thoughts", &ReasoningBudget::end_thoughts);

  nb::class_<RequestSpec>(m, "RequestSpec")
      .def(nb::init<>())
      .def_rw("id", &RequestSpec::id)
      .def_rw("prompt", &RequestSpec::prompt)
      .def_rw("sampling", &RequestSpec::sampling)
      .def_rw("dry_breakers", &RequestSpec::dry_breakers)
      .def_rw("limits", &RequestSpec::limits)
      .def(
          "set_infill",
          [](RequestSpec& self, std::shared_ptr<InfillVocabulary> vocabulary) {
            self.infill = std::make_shared<Infill>(std::move(vocabulary));
          },
          "vocabulary"_a)
      .def_rw("max_tokens", &RequestSpec::max_tokens)
      .def_rw("n_probs", &RequestSpec::n_probs)
      .def_rw("want_logprob", &RequestSpec::want_logprob)
      .def_rw("post_sampling_probs", &RequestSpec::post_sampling_probs)
      .def_rw("prompt_logprobs", &RequestSpec::prompt_logprobs)
      .def_rw("lora_scales", &RequestSpec::lora_scales)
      .def_rw("cache_prompt", &RequestSpec::cache_prompt)
      .def_rw("id_slot", &RequestSpec::id_slot)
      .def_rw("n_cache_reuse", &RequestSpec::n_cache_reuse)
      .def_rw("n_keep", &RequestSpec::n_keep)
      .def_rw("n_discard", &RequestSpec::n_discard)
      .def_rw("mask", &RequestSpec::mask, nb::arg("mask").none())
      .def_rw("reasoning_budget", &RequestSpec::reasoning_budget,
              nb::arg("reasoning_budget").none())
      .def(
          "set_stop",
          [](RequestSpec& self, const PyStopStrings& stops) {
            self.stop = StopMatcher(stops.stops);
            self.pause_tokens = stops.completing_tokens;
          },
          "stops"_a)
      .def(
          "add_pause_tokens",
          [](RequestSpec& self, const TriggerPlan& plan) {
            if (plan.completing_tokens() == nullptr) return;
            // Without a list of its own a stop string is looked for on the host anyway.
            auto all = std::make_shared<std::vector<std::uint32_t>>(*plan.completing_tokens());
            if (self.pause_tokens != nullptr) {
              const std::size_t n = std::min(all->size(), self.pause_tokens->size());
              for (std::size_t i = 0; i < n; ++i) (*all)[i] |= (*self.pause_tokens)[i];
            } else if (!self.stop.empty()) {
              return;
            }
            self.pause_tokens = std::move(all);
          },
          "plan"_a)
      .def(
          "add_logit_bias",
          [](RequestSpec& self, TokenId token, float bias) {
            self.logit_bias.push_back({.token = token, .bias = bias});
          },
          "token"_a, "bias"_a);
}

void bind_slot_action(nb::module_& m) {
  nb::class_<SlotAction>(m, "SlotAction")
      .def(
          "__init__",
          [](SlotAction* self, RequestId id, int kind, std::int32_t slot) {
            if (kind < 0 || kind > static_cast<int>(SlotActionKind::kErase)) {
              throw nb::value_error("kind: unknown");
            }
            new (self)
                SlotAction{.id = id, .kind = static_cast<SlotActionKind>(kind), .slot = slot};
          },
          "id"_a, "kind"_a, "slot"_a)
      .def_ro("id", &SlotAction::id)
      .def_ro("n_tokens", &SlotAction::n_tokens)
      .def_ro("succeeded", &SlotAction::succeeded);
}

std::shared_ptr<GrammarEngine> make_grammar_engine(PyEngine& self, const std::string& library,
                                                   const std::string& version) {
  const nb::gil_scoped_release release;
  return std::make_shared<GrammarEngine>(self.get().grammar_vocabulary(), library, version);
}

nb::bytes mask_bytes(TokenMask& mask) {
  const auto words = mask.words();
  return nb::bytes(words.data(), words.size_bytes());
}

void bind_grammar(nb::module_& m) {
  nb::class_<TokenMask>(m, "TokenMask")
      .def_prop_ro("failure", [](const TokenMask& self) { return to_bytes(self.failure()); })
      .def_prop_ro("n_masks", &TokenMask::n_masks)
      .def_prop_ro("n_checks", &TokenMask::n_checks)
      .def_prop_ro("mask_ns_total", &TokenMask::mask_ns_total)
      // What the drawing thread calls; for tests and benchmarks, never on a mask in use.
      .def(
          "check",
          [](TokenMask& self, TokenId token) { return static_cast<int>(self.check(token)); },
          "token"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("accept", &TokenMask::accept, "token"_a)
      .def("words", &mask_bytes);

  nb::class_<GrammarTrigger>(m, "GrammarTrigger")
      .def(
          "__init__",
          [](GrammarTrigger* self, TokenId token, const nb::bytes& word, bool inside) {
            new (self) GrammarTrigger{token, std::string(view(word)), inside};
          },
          "token"_a, "word"_a, "inside"_a);

  nb::class_<TriggerPlan>(m, "TriggerPlan");

  nb::class_<Grammar>(m, "Grammar")
      .def("start", &Grammar::start, "plan"_a.none(), nb::call_guard<nb::gil_scoped_release>());

  nb::class_<GrammarEngine>(m, "GrammarEngine")
      .def(
          "compile",
          [](GrammarEngine& self, const std::string& kind, const nb::bytes& text) {
            const std::string source(view(text));
            const nb::gil_scoped_release release;
            return self.compile(kind, source);
          },
          "kind"_a, "text"_a)
      .def(
          "plan_triggers",
          [](const GrammarEngine& self, std::vector<GrammarTrigger> triggers,
             const nb::bytes& quiet_start, const nb::bytes& quiet_end, bool is_quiet,
             bool may_resume, bool lists_tokens) {
            QuietSpan quiet{std::string(view(quiet_start)), std::string(view(quiet_end)), is_quiet};
            const nb::gil_scoped_release release;
            return self.plan_triggers(std::move(triggers), std::move(quiet), may_resume,
                                      lists_tokens);
          },
          "triggers"_a, "quiet_start"_a, "quiet_end"_a, "is_quiet"_a, "may_resume"_a,
          "lists_tokens"_a);
}

void bind_event(nb::module_& m) {
  using E = PyTokenEvent;
  nb::class_<E>(m, "TokenEvent")
      .def_prop_ro("request_id", [](const E& e) { return e.record.request_id; })
      .def_prop_ro("sequence_number", [](const E& e) { return e.record.sequence_number; })
      .def_prop_ro("slot", [](const E& e) { return e.record.slot; })
      .def_prop_ro("kind", [](const E& e) { return static_cast<int>(e.record.kind); })
      .def_prop_ro("t_us", [](const E& e) { return e.record.t_us; })
      .def_prop_ro("finish_reason",
                   [](const E& e) { return static_cast<int>(e.record.finish_reason); })
      .def_prop_ro("token", [](const E& e) { return e.record.token.token; })
      .def_prop_ro("logprob", [](const E& e) { return e.record.token.logprob; })
      .def_prop_ro("n_decoded",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_decoded
                                                                  : e.record.token.n_decoded;
                   })
      .def_prop_ro("n_prompt", [](const E& e) { return e.record.prompt.n_prompt; })
      .def_prop_ro("n_cached", [](const E& e) { return e.record.prompt.n_cached; })
      .def_prop_ro("n_processed", [](const E& e) { return e.record.prompt.n_processed; })
      .def_prop_ro("n_idle_saved", [](const E& e) { return e.record.prompt.n_idle_saved; })
      .def_prop_ro("updated_cache", [](const E& e) { return e.record.prompt.updated_cache != 0; })
      .def_prop_ro("n_shifts",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_shifts
                                                                  : e.record.token.n_shifts;
                   })
      .def_prop_ro("n_cells",
                   [](const E& e) {
                     return e.record.kind == EventKind::kFinished ? e.record.finished.n_cells
                                                                  : e.record.token.n_cells;
                   })
      .def_prop_ro("status", [](const E& e) { return e.record.finished.status; })
      .def_prop_ro("cut_line", [](const E& e) { return e.record.finished.cut_line; })
      .def_prop_ro("top_logprobs", &alternatives_of,
                   nb::sig("def top_logprobs(self) -> list[tuple[int, float]]"));
}

void bind_engine(nb::module_& m) {
  nb::class_<PyEngine>(m, "Engine")
      .def(nb::init<const EngineConfig&>(), "config"_a)
      .def("start", [](PyEngine& self) { self.get().start(); })
      .def(
          "stop", [](PyEngine& self) { self.get().stop(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "submit",
          [](PyEngine& self, const RequestSpec& spec) {
            return self.get().submit(std::make_unique<RequestSpec>(spec));
          },
          "spec"_a)
      .def(
          "cancel", [](PyEngine& self, RequestId id) { return self.get().cancel(id); },
          "request_id"_a)
      .def(
          "act",
          [](PyEngine& self, std::shared_ptr<SlotAction> action) {
            return self.get().submit(action);
          },
          "action"_a)
      .def(
          "write_slot_file",
          [](PyEngine& self, const std::shared_ptr<SlotAction>& action,
             const std::string& directory, const std::string& name) {
            const nb::gil_scoped_release release;
            return self.get().write_slot_file(*action, directory, name);
          },
          "action"_a, "directory"_a, "name"_a)
      .def(
          "read_slot_file",
          [](PyEngine& self, const std::shared_ptr<SlotAction>& action,
             const std::string& directory, const std::string& name,
             std::vector<float> lora_scales) {
            const nb::gil_scoped_release release;
            return self.get().read_slot_file(*action, directory, name, std::move(lora_scales));
          },
          "action"_a, "directory"_a, "name"_a, "lora_scales"_a)
      .def(
          "n_cells",
          [](PyEngine& self, std::int32_t slot) {
            return self.get().decode_thread().n_cells(slot);
          },
          "slot"_a)
      .def("drain", &PyEngine::drain, nb::sig("def drain(self) -> list[TokenEvent]"))
      .def("park", &PyEngine::park)
      .def("acknowledge",
           [](PyEngine& self) { self.get().decode_thread().reader_wakeup().acknowledge(); })
      .def("fileno", [](PyEngine& self) { return self.get().decode_thread().reader_wakeup().fd(); })
      .def("state",
           [](PyEngine& self) { return static_cast<int>(self.get().decode_thread().state()); })
      .def("error", [](PyEngine& self) { return to_bytes(self.get().decode_thread().error()); })
      .def("load_progress", [](PyEngine& self) { return self.get().load_progress(); })
      .def("heartbeat_age_us",
           [](PyEngine& self) { return self.get().decode_thread().heartbeat_age_us(); })
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, typing.Any]"))
      .def("decode_loop", &decode_loop, nb::sig("def decode_loop(self) -> dict[str, typing.Any]"))
      .def("model_info", &model_info, nb::sig("def model_info(self) -> dict[str, typing.Any]"))
      .def("make_grammar_engine", &make_grammar_engine, "library"_a, "version"_a)
      .def("token_pieces", &token_pieces, "special"_a,
           nb::sig("def token_pieces(self, special: bool) -> list[bytes]"))
      .def(
          "tokenize",
          [](PyEngine& self, const nb::bytes& text, bool add_special, bool parse_special) {
            const std::string_view bytes = view(text);
            const nb::gil_scoped_release release;
            return self.get().tokenize(bytes, add_special, parse_special);
          },
          "text"_a, "add_special"_a, "parse_special"_a)
      .def(
          "detokenize",
          [](PyEngine& self, const std::vector<std::int32_t>& tokens, bool special) {
            std::string text;
            {
              const nb::gil_scoped_release release;
              text = self.get().detokenize(tokens, special);
            }
            return to_bytes(text);
          },
          "tokens"_a, "special"_a)
      .def(
          "make_stop_strings",
          [](PyEngine& self, const nb::list& stops, bool special, std::vector<TokenId> preserved) {
            const std::vector<std::string> strings = to_strings(stops);
            const nb::gil_scoped_release release;
            return compile_stops(std::make_shared<const StopStrings>(
                                     self.get().token_text(special, std::move(preserved)), strings),
                                 self.get().decode_loop().loop != DecodeLoop::kHost);
          },
          "stops"_a, "special"_a, "preserved"_a,
          nb::sig("def make_stop_strings(self, stops: list[bytes], special: bool, "
                  "preserved: collections.abc.Sequence[int]) -> StopStrings"))
      .def("make_infill_vocabulary",
           [](PyEngine& self) {
             const nb::gil_scoped_release release;
             return self.get().make_infill_vocabulary();
           })
      .def(
          "make_text_limits",
          [](PyEngine& self, std::int32_t n_indent, std::int64_t t_max_ms, bool special,
             std::vector<TokenId> preserved) {
            return TextLimits(self.get().token_text(special, std::move(preserved)), n_indent,
                              t_max_ms);
          },
          "n_indent"_a, "t_max_ms"_a, "special"_a, "preserved"_a)
      .def(
          "make_reasoning_budget",
          [](PyEngine& self, std::vector<TokenId> start, std::vector<std::vector<TokenId>> ends,
             std::vector<TokenId> forced, std::int32_t n_tokens, bool suspends_mask,
             const std::vector<TokenId>& prompt) {
            return self.get().make_reasoning_budget({.starts = {std::move(start)},
                                                     .ends = std::move(ends),
                                                     .forced = std::move(forced),
                                                     .n_tokens = n_tokens,
                                                     .suspends_mask = suspends_mask},
                                                    prompt);
          },
          "start"_a, "ends"_a, "forced"_a, "n_tokens"_a, "suspends_mask"_a, "prompt"_a)
      .def(
          "make_dry_breakers",
          [](PyEngine& self, const std::vector<std::string>& breakers) {
            const nb::gil_scoped_release release;
            return self.get().make_dry_breakers(breakers);
          },
          "breakers"_a);
}

nb::bytes chat_prompt(const nb::bytes& chat_template, const nb::list& messages,
                      bool add_generation_prompt) {
  std::vector<ChatMessage> chat;
  for (const nb::handle message : messages) {
    const auto [role, content] = nb::cast<std::pair<nb::bytes, nb::bytes>>(message);
    chat.push_back({.role = std::string(view(role)), .content = std::string(view(content))});
  }
  const std::string text(view(chat_template));
  std::string prompt;
  {
    const nb::gil_scoped_release release;
    prompt = format_chat(text, chat, add_generation_prompt);
  }
  return to_bytes(prompt);
}

// Sizes of the structs that cross the C boundary by value, as compiled here; the loader compares
// them with llama_cpp's where that is no build of ours.
nb::dict abi_sizes() {
  nb::dict sizes;
  sizes["llama_model_params"] = sizeof(llama_model_params);
  sizes["llama_context_params"] = sizeof(llama_context_params);
  sizes["llama_batch"] = sizeof(llama_batch);
  sizes["llama_token_data"] = sizeof(llama_token_data);
  sizes["llama_sampler_chain_params"] = sizeof(llama_sampler_chain_params);
  return sizes;
}

}  // namespace
}  // namespace unpaced

NB_MODULE(_native, m) {
  using namespace unpaced;
  m.doc() = "Native engine of unpaced: decode thread, rings, sampling. Use engine_ext's face.";
  m.def(
      "install_log_sink",
      [](int min_level, int file) { install_log_sink(static_cast<LogLevel>(min_level), file); },
      "min_level"_a, "file"_a = -1);
  m.def("abi_sizes", &abi_sizes, nb::sig("def abi_sizes() -> dict[str, int]"));
  m.def("ggml_commit", [] { return std::string(ggml_commit()); });
  m.def("allowed_cores", &allowed_cores);
  m.def(
      "count_physical_cores",
      [](const std::vector<int>& cores) { return count_physical_cores(cores); }, "cores"_a);
  m.def(
      "ggml_type_name",
      [](int type) { return std::string(ggml_type_name(static_cast<ggml_type>(type))); }, "type"_a);
  m.def("builtin_chat_templates", &builtin_chat_templates);
  m.def("format_chat", &chat_prompt, "chat_template"_a, "messages"_a, "add_generation_prompt"_a,
        nb::sig("def format_chat(chat_template: bytes, messages: list[tuple[bytes, bytes]], "
                "add_generation_prompt: bool) -> bytes"));
  bind_model_options(m);
  bind_config(m);
  bind_grammar(m);
  m.def("plan_memory", &plan_to_dict, "config"_a,
        nb::sig("def plan_memory(config: EngineConfig) -> dict[str, typing.Any]"));
  m.def("list_devices", &devices_to_list,
        nb::sig("def list_devices() -> list[dict[str, typing.Any]]"));
  bind_request(m);
  bind_slot_action(m);
  bind_event(m);
  bind_engine(m);
}
