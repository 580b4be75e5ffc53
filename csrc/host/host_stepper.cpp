#include "host/host_stepper.h"

#include <algorithm>

#include "host/token_outcome.h"
#include "log/log_sink.h"
#include "model/residency.h"

namespace unpaced {
namespace {

// llama_decode's documented return values (llama.h).
constexpr std::int32_t kNoCells = 1;
constexpr std::int32_t kDecodeAborted = 2;

// After a step, for the grammars that have not answered yet: together, and once a token. Most masks
// that are not ready take less; sitting out a step costs a request more.
constexpr std::chrono::microseconds kDecisionWait{500};
// Where there is nothing else to do; then the loop looks for commands.
constexpr std::chrono::milliseconds kIdleWait{10};

// Prompt tokens that a step computes at most. Of chunks that are the same whoever else is there the
// prefill budget is the size.
std::int32_t chunk_tokens(const EngineConfig& config) noexcept {
  const std::int32_t n_most = std::min(config.n_batch, config.n_ubatch);
  if (!config.deterministic) return std::max(config.n_slots + 1, n_most);
  return config.prefill_budget > 0 ? std::min(n_most, config.prefill_budget) : n_most;
}

// A CPU takes as long for each token of a step, few or many, so shorter steps cost a prompt little:
// by measurement (docs/bench/mixed_load.md) with these it is there a tenth later, and a stream's
// longest gap is a third. A GPU needs hundreds to be busy.
constexpr std::int32_t kPrefillBudgetOnCpu = 128;

std::int32_t prefill_budget(const EngineConfig& config, const llama_context* context) {
  if (config.prefill_budget >= 0) return config.prefill_budget;
  const bool is_open = config.max_itl_us == 0 && !config.deterministic;
  return is_open && is_on_cpu_alone(context) ? kPrefillBudgetOnCpu : 0;
}

bool can_cut(const llama_model* model) noexcept {
  return llama_model_n_swa(model) == 0 && !llama_model_is_recurrent(model) &&
         !llama_model_is_hybrid(model);
}

}  // namespace

HostStepper::HostStepper(std::shared_ptr<Model> model, const EngineConfig& config,
                         Counters& counters)
    : model_(std::move(model)),
      counters_(counters),
      deterministic_(config.deterministic),
      n_chunk_(chunk_tokens(config)),
      can_cut_(can_cut(model_->get())),
      n_swa_(llama_model_n_swa(model_->get())),
      kv_unified_(config.kv_unified),
      decodes_apart_(kv_unified_ && !deterministic_ && is_on_cpu_alone(model_->context())),
      shares_cells_(config.kv_unified && config.n_slots > 1 &&
                    !llama_model_is_recurrent(model_->get())),
      prefill_({.n_chunk = n_chunk_,
                .n_beside = prefill_budget(config, model_->context()),
                .max_itl_us = config.max_itl_us},
               config.n_slots),
      short_steps_(config.short_steps_alone ? llama_model_n_params(model_->get()) : 0,
                   static_cast<std::uint64_t>(llama_model_n_layer(model_->get())) *
                       static_cast<std::uint64_t>(llama_model_n_embd(model_->get()))),
      cells_(model_->context(), config.n_slots),
      batch_(n_chunk_),
      share_batch_(n_chunk_),
      shares_(static_cast<std::size_t>(config.n_slots)),
      is_stepped_(static_cast<std::size_t>(config.n_slots)),
      goes_(static_cast<std::size_t>(config.n_slots), true),
      prefills_(static_cast<std::size_t>(config.n_slots)),
      draws_(static_cast<std::size_t>(config.n_slots)),
      top_logprobs_(model_->n_vocab()) {
  for (OpenDraw& draw : draws_) {
    draw.row = std::make_unique_for_overwrite<float[]>(  // NOLINT
        static_cast<std::size_t>(model_->n_vocab()));
  }
  for (std::int32_t i = 0; i < config.n_slots; ++i) {
    samplers_.push_back(std::make_unique<Sampler>(model_->n_vocab(), model_->n_ctx_slot()));
  }
  claims_.reserve(static_cast<std::size_t>(config.n_slots));
  prompts_.reserve(static_cast<std::size_t>(config.n_slots));
  counters_.prefill_budget.set(static_cast<std::uint64_t>(prefill_.n_beside(1)));
  pairs_.resize(static_cast<std::size_t>(model_->n_vocab()));
}

void HostStepper::step(std::span<Slot> slots, EventPublisher& events) {
  step_slots(slots, events, [](const Slot&) { return true; });
}

void HostStepper::step_prompts(std::span<Slot> slots, EventPublisher& events) {
  step_slots(slots, events, [](const Slot& slot) { return slot.phase != SlotPhase::kDecode; });
}

template <class Takes>
void HostStepper::step_slots(std::span<Slot> slots, EventPublisher& events, Takes takes) {
  const std::int64_t begin_us = steady_us();
  decide_draws(slots, std::chrono::nanoseconds::zero(), events);
  allot(slots);
  plan_prefill(slots);
  is_stepped_.assign(slots.size(), false);
  bool is_busy = false;
  for (const Slot& slot : slots) {
    if (slot.active() && !is_stepped_[static_cast<std::size_t>(slot.id)] && takes(slot)) {
      is_busy |= step_group(slots, slot, events);
    }
  }
  if (is_busy) {
    observe_step(begin_us);
  } else {  // grammars are all there is to wait for
    for (OpenDraw& draw : draws_) draw.is_new = true;
    decide_draws(slots, kIdleWait, events);
    keep_rows();
  }
  clean(slots);
}

bool HostStepper::step_group(std::span<Slot> slots, const Slot& leader, EventPublisher& events) {
  if (!decodes_apart_) return step_part(slots, leader, StepPart::kAll, events);
  const bool has_decoded = step_part(slots, leader, StepPart::kDecoding, events);
  // What is there does not wait for the prompts' part.
  if (has_decoded && !prompts_.empty()) events.flush();
  return step_part(slots, leader, StepPart::kPrompts, events) || has_decoded;
}

bool HostStepper::step_part(std::span<Slot> slots, const Slot& leader, StepPart part,
                            EventPublisher& events) {
  build_batch(slots, leader, part);
  if (batch_.size() == 0) return false;
  counters_.count_batch(batch_.size());
  model_->set_lora_scales(leader.lora_scales);
  run_batch(slots, events);
  decide_draws(slots, kDecisionWait, events);
  keep_rows();
  return true;
}

void HostStepper::clean(std::span<Slot> slots) noexcept {
  if (!is_tainted_) return;
  if (std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return s.active(); })) return;
  llama_memory_clear(llama_get_memory(model_->context()), true);
  cells_.lose_all();
  for (Slot& slot : slots) {
    slot.cells.clear();
    slot.n_exact = 0;
  }
  is_tainted_ = false;
}

void HostStepper::build_batch(std::span<Slot> slots, const Slot& leader, StepPart part) noexcept {
  batch_.clear();
  for (Slot& slot : slots) {
    share_of(slot) = {};
    if (is_beside(slot, leader)) is_stepped_[static_cast<std::size_t>(slot.id)] = true;
  }
  if (!kv_unified_) return add_by_stream(slots, leader);
  for (Slot& slot : slots) {
    if (part == StepPart::kPrompts) break;
    if (slot.phase == SlotPhase::kDecode && may_go(slot) && is_beside(slot, leader)) {
      add_decode(slot);
    }
  }
  if (part == StepPart::kDecoding) return;
  // After the decoding slots, so that a long prompt takes only what they leave of the chunk.
  for (const PromptShare& prompt : prompts_) {
    Slot& slot = slots[static_cast<std::size_t>(prompt.slot)];
    if (is_beside(slot, leader)) add_prefill(slot, prompt.n);
  }
}

void HostStepper::add_decode(Slot& slot) noexcept {
  share_of(slot) = {.first = batch_.size(), .n = 1};
  ++n_decoded_;
  batch_.add(slot.next_token, slot.n_cells(), slot.sequence, true);
}

void HostStepper::run_batch(std::span<Slot> slots, EventPublisher& events) {
  if (run_prompt_pass(slots, events)) return;
  const std::int32_t status = decode(batch_, slots);
  if (status == kDecodeAborted) return;  // stop() was called; the loop ends the requests
  if (status == 0) {
    for (Slot& slot : slots) {
      if (share_of(slot).n > 0) collect(slot, events);
    }
    return;
  }
  for (Slot& slot : slots) {
    if (share_of(slot).n > 0) run_share(slot, slots, events);
    keep_rows();
  }
}

bool HostStepper::run_prompt_pass(std::span<Slot> slots, EventPublisher& events) {
  if (prompt_pass_ == nullptr) return false;
  const auto lone = std::ranges::find_if(
      slots, [this](const Slot& slot) { return share_of(slot).n == batch_.size(); });
  if (lone == slots.end() || lone->phase != SlotPhase::kPrefill) return false;
  const RequestSpec& spec = *lone->spec;
  Share& share = share_of(*lone);
  const std::span<const TokenId> rest = std::span(spec.prompt).subspan(lone->cells.size());
  const bool is_last = rest.size() == static_cast<std::size_t>(share.n);
  if (!is_last || spec.prompt_logprobs || !lone->lora_scales.empty()) return false;
  share.logits = prompt_pass_->compute(*lone, rest);
  if (share.logits == nullptr) return false;
  counters_.n_prompts_graph.add(1);
  collect(*lone, events);
  return true;
}

std::int32_t HostStepper::decode(const TokenBatch& batch, std::span<Slot> slots) {
  StepSize size{.n_tokens = batch.size(), .has_prompt = n_prefilled_ > 0};
  for (const Slot& slot : slots) {
    if (share_of(slot).n > 0) size.n_cells = std::max(size.n_cells, slot.n_cells());
    size.n_read += slot.n_cells();
  }
  // In a stream of its own a token reads its sequence's alone.
  if (!kv_unified_) size.n_read = size.n_cells;
  model_->let_compute_alone(short_steps_.next(size));
  for (;;) {
    const HeldWarnings warnings;
    const std::int32_t status = llama_decode(model_->context(), batch.get());
    if (status != kNoCells) return status;
    if (!cells_.give_way() && (!kv_unified_ || !purge_idle(slots))) return status;
    warnings.drop();  // of cells that it did not find: there are some now
  }
}

void HostStepper::run_share(Slot& slot, std::span<Slot> slots, EventPublisher& events) {
  Share& share = share_of(slot);
  // The failed batch may have left some of its tokens in the KV.
  llama_memory_seq_rm(llama_get_memory(model_->context()), slot.sequence, slot.n_cells(), -1);
  share_batch_.copy(batch_, share.first, share.n);
  share.first = 0;
  const std::int32_t status = decode(share_batch_, slots);
  if (status == kDecodeAborted) return;
  if (status == 0) {
    collect(slot, events);
    return;
  }
  forget(slot);
  events.finished(slot, FinishReason::kDecodeFailed, status);
}

void HostStepper::collect(Slot& slot, EventPublisher& events) {
  const Share share = share_of(slot);
  if (slot.phase == SlotPhase::kDecode) {
    slot.cells.push_back(slot.next_token);
    sample(slot, events);
    return;
  }
  const bool is_prompt = slot.phase == SlotPhase::kPrefill;
  if (is_prompt && slot.spec->prompt_logprobs) collect_prompt_logprobs(slot, events);
  const std::vector<TokenId>& tokens = known_tokens(slot);
  const auto begin = tokens.begin() + slot.n_cells();
  const bool is_whole = slot.n_cells() == slot.n_exact && share.n == n_chunk_;
  if (deterministic_ && can_cut_ && is_whole) slot.n_exact += share.n;
  slot.cells.insert(slot.cells.end(), begin, begin + share.n);
  counters_.n_tokens_prompt.add(static_cast<std::uint64_t>(share.n));
  Prefill& prefill = prefill_of(slot);
  if (is_prompt && slot.n_cells() > prefill.n_told) {
    prefill.n_told = slot.n_cells();
    events.prefilled(slot, prefill.n_cached);
  }
  if (slot.cells.size() < tokens.size()) return;
  slot.phase = SlotPhase::kDecode;
  if (!is_prompt) return;  // its next token has been drawn already
  if (slot.spec->max_tokens == 0) {
    events.finished(slot, FinishReason::kTokenLimit);
    return;
  }
  sample(slot, events);
}

}  // namespace unpaced
