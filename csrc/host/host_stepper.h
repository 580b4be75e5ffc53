// The stepper for every backend and every model: llama_decode for a batch of all active slots, then
// the sampling core on the CPU.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cells/cell_allotment.h"
#include "decode/stepper.h"
#include "grammar/masked_draw.h"
#include "host/prefill_policy.h"
#include "host/prompt_pass.h"
#include "host/short_steps.h"
#include "host/token_batch.h"
#include "kept/llama_cell_store.h"
#include "model/model.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace unpaced {

class HostStepper final : public Stepper {
 public:
  // Takes all memory that stepping needs. `counters` is the decode thread's.
  HostStepper(std::shared_ptr<Model> model, const EngineConfig& config, Counters& counters);

  [[nodiscard]] std::int32_t n_ctx() const noexcept override { return model_->n_ctx_slot(); }
  std::int32_t begin(Slot& slot) override;
  void step(std::span<Slot> slots, EventPublisher& events) override;
  // The same, without those who decode, where batches have one sequence each.
  void step_prompts(std::span<Slot> slots, EventPublisher& events);
  [[nodiscard]] double prompt_us(std::int32_t n, std::int32_t n_rest,
                                 std::int32_t n_decoding) const noexcept override {
    return prefill_.prompt_us(n, n_rest, n_decoding);
  }
  [[nodiscard]] double step_us(std::int32_t n_decoding,
                               std::int32_t n_waiting) const noexcept override {
    return prefill_.step_us(n_decoding, n_waiting);
  }
  bool use_idle_time() override {
    model_->rest_workers();
    return false;
  }
  void forget(Slot& slot) override;
  [[nodiscard]] CellStore* cell_store() noexcept override {
    return cells_.is_usable() ? &cells_ : nullptr;
  }
  [[nodiscard]] std::size_t state_bytes(const Slot& slot) override;
  [[nodiscard]] bool copy_state(const Slot& slot, std::span<std::byte> to) override;
  [[nodiscard]] bool restore_state(Slot& slot, const SlotState& state) override;

  // From now on it is asked before llama_decode; it outlives the steps.
  void attach_prompt_pass(PromptPass& pass) noexcept { prompt_pass_ = &pass; }

  // From now on cells change hands by this, which outlives the steps.
  void use(SequenceCells& sequences) noexcept { cells_.use(sequences); }

  // A slot's cells may hold what is not finite: it reaches every row of logits whose window of
  // cells covers it, hidden or not.
  void taint() noexcept { is_tainted_ = true; }
  // At the end of a step. Where the KV is tainted and no request runs any more, all of it goes.
  void clean(std::span<Slot> slots) noexcept;

  // Whether the slot waits for its grammar: it has no next token yet.
  [[nodiscard]] bool is_held(const Slot& slot) const noexcept {
    return draws_[static_cast<std::size_t>(slot.id)].is_open;
  }

  // The slot's sampler, for a stepper that draws in its place.
  [[nodiscard]] Sampler& sampler(const Slot& slot) noexcept {
    return *samplers_[static_cast<std::size_t>(slot.id)];
  }

 private:
  // A slot's share of the step's batch: tokens [first, first + n) of it.
  struct Share {
    std::int32_t first = 0;
    std::int32_t n = 0;
    const float* logits = nullptr;  // of the last token, where the prompt pass has computed it
  };

  // A token drawn under a grammar that has not said yet whether it may come. Its slot sits out the
  // steps until then; the other slots decode.
  struct OpenDraw {
    bool is_open = false;
    bool is_new = false;  // made in this step
    FirstDraw first;
    const float* logits = nullptr;  // llama.cpp's, until its next llama_decode; then `row`
    std::unique_ptr<float[]> row;   // NOLINT: n_vocab of them, untouched until needed
  };

  // How far the slot's request has come with the tokens that are known before they are computed.
  struct Prefill {
    std::int32_t n_cached = 0;  // of the prompt, found in the KV
    std::int32_t n_told = 0;    // of the prompt; more than the slot holds where that begins anew
    std::vector<TokenId> recompute;  // kRecompute: what the slot held
    bool waits = false;              // for cells
  };

  [[nodiscard]] OpenDraw& draw_of(const Slot& slot) noexcept {
    return draws_[static_cast<std::size_t>(slot.id)];
  }
  [[nodiscard]] Share& share_of(const Slot& slot) noexcept {
    return shares_[static_cast<std::size_t>(slot.id)];
  }
  [[nodiscard]] Prefill& prefill_of(const Slot& slot) noexcept {
    return prefills_[static_cast<std::size_t>(slot.id)];
  }
  // The tokens that a slot computes before it decodes.
  [[nodiscard]] const std::vector<TokenId>& known_tokens(const Slot& slot) noexcept {
    return slot.phase == SlotPhase::kRecompute ? prefill_of(slot).recompute : slot.spec->prompt;
  }
  [[nodiscard]] bool may_go(const Slot& slot) const noexcept {
    return slot.steps() && !is_held(slot) && goes_[static_cast<std::size_t>(slot.id)];
  }
  // Of the slots that compute something now: those for which `takes` is true.
  template <class Takes>
  void step_slots(std::span<Slot> slots, EventPublisher& events, Takes takes);
  // host_prefill.cpp
  // Says how much of whose prompt this step computes: see PrefillPolicy.
  void plan_prefill(std::span<const Slot> slots) noexcept;
  // One prompt's tokens up to the end of their chunk, wherever others are.
  void plan_chunk(std::span<const Slot> slots) noexcept;
  // To the batch, so many of the slot's tokens.
  void add_prefill(Slot& slot, std::int32_t n_planned) noexcept;
  // A step that began then is over.
  void observe_step(std::int64_t begin_us) noexcept;
  // host_cells.cpp. Decides which slots compute in this step: see allot_cells().
  void allot(std::span<Slot> slots);
  [[nodiscard]] CellClaim claim_of(const Slot& slot) noexcept;
  // But the first n_keep.
  void give_up_cells(Slot& slot, std::int32_t n_keep);
  // Where nobody has cells the slot's are the first ones, in order: attention's sums depend on
  // where the cells lie, and a request alone is to find what it would on a fresh server.
  void begin_at_first_cell(const Slot& slot) noexcept;
  // Tokens of the prompt that the slot's cells hold already, moved to where they belong.
  [[nodiscard]] std::int32_t reuse_cells(Slot& slot);
  // The slot keeps its first n cells; of these, what are whole chunks.
  void keep_exact(Slot& slot, std::int32_t n) const noexcept;
  // A full slot drops the older part of its tokens.
  void shift_context(Slot& slot, std::span<Slot> slots);
  // host_cells.cpp. No other sequence has the slot's cells from the n-th on: they may move.
  void own_cells_beyond(Slot& slot, std::int32_t n, std::span<Slot> slots);
  enum class StepPart : std::uint8_t { kAll, kDecoding, kPrompts };
  // For `leader` and the slots that compute with the same adapters: one llama_decode, or one of
  // those that decode and one of prompts, and what follows. False: they all wait for their
  // grammars.
  bool step_group(std::span<Slot> slots, const Slot& leader, EventPublisher& events);
  // The part's llama_decode. False: nobody has a token in it.
  bool step_part(std::span<Slot> slots, const Slot& leader, StepPart part, EventPublisher& events);
  void build_batch(std::span<Slot> slots, const Slot& leader, StepPart part) noexcept;
  [[nodiscard]] bool is_beside(const Slot& slot, const Slot& leader) const noexcept {
    if (deterministic_) return slot.id == leader.id;
    return slot.active() && slot.lora_scales == leader.lora_scales;
  }
  // host_prefill.cpp. Where each slot has a KV stream of its own: in the order of the streams.
  // llama.cpp computes neighbouring streams together, as many tokens of each, if they come in order
  // (llama_batch_allocr::split_equal); else one after the other.
  void add_by_stream(std::span<Slot> slots, const Slot& leader) noexcept;
  void add_decode(Slot& slot) noexcept;
  // llama_decode of the whole batch; where that fails, of each slot's share alone, so that one
  // request's failure is not another's. Ends the requests that fail.
  void run_batch(std::span<Slot> slots, EventPublisher& events);
  // The batch, if it is one prompt's last tokens, by the prompt pass. False: it is llama_decode's.
  [[nodiscard]] bool run_prompt_pass(std::span<Slot> slots, EventPublisher& events);
  void run_share(Slot& slot, std::span<Slot> slots, EventPublisher& events);
  // llama_decode's status. Where the cells that all slots share run out, what is parked and then
  // idle slots lose theirs one after the other until the batch fits.
  [[nodiscard]] std::int32_t decode(const TokenBatch& batch, std::span<Slot> slots);
  // host_cells.cpp. False: no idle slot has cells.
  [[nodiscard]] bool purge_idle(std::span<Slot> slots);
  // After a successful decode of the slot's share: its cells, its events, its next token.
  void collect(Slot& slot, EventPublisher& events);
  void collect_prompt_logprobs(Slot& slot, EventPublisher& events);
  // host_draws.cpp
  void sample(Slot& slot, EventPublisher& events);
  // Takes what the grammars have decided of open draws. Waits for those of this step, together no
  // longer than `limit`.
  void decide_draws(std::span<Slot> slots, std::chrono::nanoseconds limit, EventPublisher& events);
  // Draws that stay open no longer need llama.cpp's rows of logits.
  void keep_rows() noexcept;
  void decide(Slot& slot, TokenMask::Verdict verdict, EventPublisher& events);
  void publish(Slot& slot, TokenId token, const float* logits, EventPublisher& events);
  void end_without_token(Slot& slot, FinishReason reason, EventPublisher& events);
  // Publishes the alternatives; returns the token's own logprob (or probability).
  [[nodiscard]] float publish_logprobs(Slot& slot, TokenId token, const float* logits,
                                       EventPublisher& events);

  const std::shared_ptr<Model> model_;
  Counters& counters_;
  const bool deterministic_;
  const std::int32_t n_chunk_;
  const bool can_cut_;  // what a sequence has computed, at any of its tokens
  const std::int32_t n_swa_;
  const bool kv_unified_;
  // ggml's attention on a CPU takes 64 rows together through all cells that one of them reads: a
  // token of each stream among rows of prompts costs as many rows of each stream's text.
  const bool decodes_apart_;
  const bool shares_cells_;  // a slot can find none although its context is not full
  PrefillPolicy prefill_;
  ShortSteps short_steps_;
  bool is_tainted_ = false;
  PromptPass* prompt_pass_ = nullptr;  // null: there is none
  LlamaCellStore cells_;
  TokenBatch batch_;
  TokenBatch share_batch_;
  std::vector<Share> shares_;      // by slot id
  std::vector<bool> is_stepped_;   // by slot id: it has had its turn in this step
  std::vector<bool> goes_;         // by slot id: it has the cells for this step
  std::vector<CellClaim> claims_;  // of this step, the oldest request first
  // Of this step: who is done first is first; in streams of their own by slot.
  std::vector<PromptShare> prompts_;
  std::int32_t n_streams_ = 0;                      // slots whose text has begun, in this step
  std::int32_t n_decoded_ = 0;                      // of them, those that decode in this step
  std::int32_t n_prefilled_ = 0;                    // tokens of prompts, in this step
  std::vector<Prefill> prefills_;                   // by slot id
  std::vector<std::unique_ptr<Sampler>> samplers_;  // by slot id
  std::vector<OpenDraw> draws_;                     // by slot id
  TopLogprobs top_logprobs_;
  std::vector<TokenLogprob> pairs_;  // scratch for post-sampling probabilities
};

}  // namespace unpaced
