#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "backend/cpu_backend.h"
#include "engine/stepper_factory.h"

namespace unpaced {
namespace {

DecodeThreadOptions options_of(const EngineConfig& config) {
  return {.n_slots = config.n_slots,
          .n_waiting_max = config.n_waiting_max,
          .slot_similarity = config.slot_similarity,
          .keeper = {.cache_bytes_max = config.cache_bytes_max,
                     .cache_idle_slots = config.cache_idle_slots,
                     .clear_idle_slots = config.kv_unified},
          .wake_interval_us = config.wake_interval_us,
          .abort_grace = std::chrono::microseconds(config.abort_grace_us),
          .cores = config.decode_cores};
}

void check_token(TokenId token, std::int32_t n_vocab, const char* field) {
  if (token < 0 || token >= n_vocab) {
    throw std::invalid_argument(std::string(field) + ": token " + std::to_string(token) +
                                " is not in [0, " + std::to_string(n_vocab) + ")");
  }
}

}  // namespace

Engine::Engine(EngineConfig config)
    : config_(std::move(config)),
      lora_scales_(config_.options.lora_scales()),
      decode_thread_(options_of(config_)) {}

void Engine::start() {
  init_backends();
  llama_numa_init(static_cast<ggml_numa_strategy>(config_.options.numa));
  decode_thread_.start([this]() -> std::unique_ptr<Stepper> {
    const EngineConfig config = configure_device(config_);
    auto model = std::make_shared<Model>(config, load_progress_, decode_thread_.stop_flag());
    vocabulary_ = std::make_unique<Vocabulary>(model->vocab());
    pieces_ = std::make_shared<const TokenPieces>(*vocabulary_, false);
    pieces_special_ = std::make_shared<const TokenPieces>(*vocabulary_, true);
    llama_model_ = model->get();
    model_identity_ = model->identity();
    model->count_nodes(decode_thread_.counters().n_nodes);
    // The decode thread's counters are its own: this lambda runs on it.
    const Model& kept = *model;  // by the stepper
    auto stepper = make_stepper(std::move(model), config, decode_thread_.counters(), decode_loop_);
    // Last: the decode thread gets its core next, before it computes anything.
    kept.take_priority();
    return stepper;
  });
}

void Engine::stop() noexcept { static_cast<void>(stop_within(std::chrono::nanoseconds::max())); }

bool Engine::stop_within(std::chrono::nanoseconds limit) noexcept {
  bool is_stopped = false;
  {
    const std::unique_lock nobody_tokenises(vocabulary_users_);
    is_stopped = decode_thread_.stop_within(limit);
  }
  return is_stopped;
}

bool Engine::abandon(const char* why, FinishReason reason) noexcept {
  const bool may_still_run = decode_thread_.abandon(why);
  if (is_abandoned_) return may_still_run;
  is_abandoned_ = true;
  abandoned_reason_ = reason;
  return may_still_run;
}

bool Engine::submit(std::unique_ptr<RequestSpec> spec) {
  if (decode_thread_.state() != EngineState::kReady) return false;
  check(*spec);
  // Every submitted request may be waiting; beyond that the decode thread would have to refuse it.
  if (on_loan_.size() >= static_cast<std::size_t>(config_.n_slots + config_.n_waiting_max)) {
    return false;
  }
  RequestSpec* raw = spec.get();
  const auto [it, is_new] = on_loan_.try_emplace(raw->id, std::move(spec));
  if (!is_new) throw std::invalid_argument("id: request is already running");
  if (decode_thread_.submit(raw)) return true;
  on_loan_.erase(it);
  return false;
}

bool Engine::submit(const std::shared_ptr<SlotAction>& action) {
  if (action->slot < 0 || action->slot >= config_.n_slots) {
    throw std::invalid_argument("slot: there is none of this number");
  }
  if (actions_.size() >= static_cast<std::size_t>(DecodeThreadOptions{}.n_actions_max) ||
      !decode_thread_.submit(action.get())) {
    return false;
  }
  actions_.emplace(action->id, action);
  return true;
}

std::size_t Engine::write_slot_file(SlotAction& action, const std::string& directory,
                                    const std::string& name) const {
  SlotState state = std::exchange(action.state, {});  // freed here, on the caller's thread
  return unpaced::write_slot_file(directory, name, state, identity_with(state.lora_scales));
}

std::uint64_t Engine::identity_with(std::span<const float> lora_scales) const noexcept {
  if (std::ranges::equal(lora_scales, lora_scales_)) return model_identity_;
  std::uint64_t hash = model_identity_;
  for (const float scale : lora_scales) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(scale)) * 0x100000001b3;  // as FNV-1a
  }
  return hash;
}

std::size_t Engine::read_slot_file(SlotAction& action, const std::string& directory,
                                   const std::string& name, std::vector<float> lora_scales) const {
  const SlotFileLimits limits{.model = identity_with(lora_scales),
                              .n_vocab = vocabulary().n_tokens(),
                              .n_ctx = decode_thread_.n_ctx()};
  std::size_t n_bytes = 0;
  action.state = unpaced::read_slot_file(directory, name, limits, n_bytes);
  action.state.lora_scales = std::move(lora_scales);
  action.state.cache_domain = action.cache_domain;
  return n_bytes;
}

void Engine::check(const RequestSpec& spec) const {
  const std::int32_t n_vocab = vocabulary().n_tokens();
  if (spec.lora_scales.size() != lora_scales_.size()) {
    throw std::invalid_argument("lora: must be as many scales as adapters, " +
                                std::to_string(lora_scales_.size()));
  }
  if (spec.prompt.empty()) throw std::invalid_argument("prompt: is empty");
  if (spec.prompt.size() >= static_cast<std::size_t>(decode_thread_.n_ctx())) {
    throw std::invalid_argument("prompt: " + std::to_string(spec.prompt.size()) +
                                " tokens do not fit the context of " +
                                std::to_string(decode_thread_.n_ctx()));
  }
  for (const TokenId token : spec.prompt) check_token(token, n_vocab, "prompt");
  for (const LogitBias& bias : spec.logit_bias) check_token(bias.token, n_vocab, "logit_bias");
  if (spec.id_slot < -1) throw std::invalid_argument("id_slot: must be -1 or a slot's number");
  if (spec.n_cache_reuse < 0 || spec.n_keep < -1 || spec.n_discard < 0) {
    throw std::invalid_argument("n_keep, n_discard, n_cache_reuse: must not be negative");
  }
  if (spec.n_probs < 0 || spec.n_probs > n_vocab) {
    throw std::invalid_argument("n_probs: must be from 0 to the vocabulary's size");
  }
  if (spec.reasoning_budget != nullptr) {
    for (const TokenId token : spec.reasoning_budget->forced_tokens()) {
      for (const LogitBias& bias : spec.logit_bias) {
        if (bias.token != token || bias.bias != -std::numeric_limits<float>::infinity()) continue;
        throw std::invalid_argument("logit_bias: bans token " + std::to_string(token) +
                                    ", which the end of the reasoning budget forces");
      }
    }
  }
  if (spec.sampling.n_chain < 0 || spec.sampling.n_chain > kMaxChainLength) {
    throw std::invalid_argument("samplers: too many");
  }
}

bool Engine::has_events() const noexcept {
  if (is_closed_) return !abandoned_.empty();
  return is_abandoned_ || decode_thread_.n_events_approx() > 0;
}

void Engine::close() noexcept {
  is_closed_ = true;
  // Specs and actions stay where they are: the thread may come back to them.
  for (const auto& [id, spec] : on_loan_) abandoned_.push_back(id);
  for (const auto& [id, action] : actions_) abandoned_.push_back(id);
}

std::size_t Engine::pop(TokenEvent* out, std::size_t max) noexcept {
  return is_closed_ ? 0 : decode_thread_.drain(out, max);
}

void Engine::settle(std::vector<TokenEvent>& events) {
  for (const TokenEvent& event : events) {
    if (event.kind != EventKind::kFinished) continue;
    if (on_loan_.erase(event.request_id) == 0) actions_.erase(event.request_id);
  }
  // What the thread published before it was given up counts.
  if (is_abandoned_ && !is_closed_ && events.empty()) close();
  if (!is_closed_) return;
  for (const RequestId id : std::exchange(abandoned_, {})) {
    TokenEvent& event = events.emplace_back();
    event = {};
    event.request_id = id;
    event.t_us = steady_us();
    event.kind = EventKind::kFinished;
    event.finish_reason = abandoned_reason_;
    event.finished = {.n_decoded = 0, .n_cells = 0, .status = 0, .n_shifts = 0, .cut_line = -1};
  }
}

float Engine::load_progress() const noexcept {
  return load_progress_.fraction.load(std::memory_order_relaxed);
}

const Vocabulary& Engine::vocabulary() const {
  if (decode_thread_.state() != EngineState::kReady) {
    throw std::logic_error("the engine is not ready");
  }
  return *vocabulary_;
}

const llama_model* Engine::model() const {
  static_cast<void>(vocabulary());
  return llama_model_;
}

const TokenPieces& Engine::token_pieces(bool special) const {
  static_cast<void>(vocabulary());
  return special ? *pieces_special_ : *pieces_;
}

TokenText Engine::token_text(bool special, std::vector<TokenId> preserved) const {
  const std::int32_t n_vocab = vocabulary().n_tokens();
  for (const TokenId token : preserved) check_token(token, n_vocab, "preserved_tokens");
  std::sort(preserved.begin(), preserved.end());
  return {.pieces = special ? pieces_special_ : pieces_,
          .special = pieces_special_,
          .spelled_out = std::move(preserved)};
}

std::shared_ptr<InfillVocabulary> Engine::make_infill_vocabulary() const {
  const Vocabulary& known = vocabulary();
  TokenId end = llama_vocab_eot(known.get());
  if (end < 0) end = llama_vocab_eos(known.get());
  if (end < 0) throw std::invalid_argument("samplers: the model has no token that ends a text");
  std::vector<std::string_view> pieces;
  std::vector<std::uint8_t> ends;
  for (TokenId token = 0; token < known.n_tokens(); ++token) {
    pieces.push_back((*pieces_)[token]);
    ends.push_back(llama_vocab_is_eog(known.get(), token) ? 1 : 0);
  }
  return std::make_shared<InfillVocabulary>(pieces, std::move(ends), end);
}

std::shared_ptr<ReasoningBudget> Engine::make_reasoning_budget(
    CompiledBudget plan, std::span<const TokenId> prompt) const {
  const std::int32_t n_vocab = vocabulary().n_tokens();
  const auto check_all = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) check_token(token, n_vocab, "reasoning_budget");
  };
  for (const std::vector<TokenId>& start : plan.starts) check_all(start);
  for (const std::vector<TokenId>& end : plan.ends) check_all(end);
  check_all(plan.forced);
  check_all(prompt);
  if (plan.forced.empty())
    throw std::invalid_argument("reasoning_budget: nothing ends the reasoning");
  auto budget = std::make_shared<ReasoningBudget>(std::move(plan), pieces_);
  for (const TokenId token : prompt) budget->accept_prompt(token);
  return budget;
}

std::shared_lock<std::shared_mutex> Engine::use_vocabulary() {
  std::shared_lock lock(vocabulary_users_, std::try_to_lock);
  if (!lock) throw std::logic_error("the engine is stopping");
  return lock;
}

std::vector<std::int32_t> Engine::tokenize(std::string_view text, bool add_special,
                                           bool parse_special) {
  const auto lock = use_vocabulary();
  if (text.size() <= Vocabulary::kAnyStackBytes) {
    return vocabulary().tokenize(text, add_special, parse_special);
  }
  std::vector<std::int32_t> tokens;
  (text.size() <= kLongBytes ? tasks_ : long_tasks_).run([&] {
    tokens = vocabulary().tokenize(text, add_special, parse_special);
  });
  return tokens;
}

std::string Engine::detokenize(std::span<const std::int32_t> tokens, bool special) {
  const auto lock = use_vocabulary();
  return vocabulary().detokenize(tokens, special);
}

GrammarVocabulary Engine::grammar_vocabulary() {
  const auto lock = use_vocabulary();
  return GrammarVocabulary(vocabulary());
}

DryBreakers Engine::make_dry_breakers(std::span<const std::string> breakers) {
  const auto lock = use_vocabulary();
  DryBreakers made;
  tasks_.run([&] { made = unpaced::make_dry_breakers(vocabulary().get(), breakers); });
  return made;
}

}  // namespace unpaced
