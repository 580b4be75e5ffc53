// What a slot holds as a request begins, and what becomes of it between requests.
#include <algorithm>
#include <stdexcept>

#include "host/host_stepper.h"
#include "slots/chunk_reuse.h"
#include "slots/common_prefix.h"
#include "slots/context_shift.h"

namespace unpaced {

std::int32_t HostStepper::begin(Slot& slot) {
  const RequestSpec& spec = *slot.spec;
  const auto n_prompt = static_cast<std::int32_t>(spec.prompt.size());
  if (n_prompt < 1 || n_prompt >= n_ctx()) {
    throw std::length_error("the prompt does not fit the slot's context");
  }
  if (!slot.is_of_use_to(spec)) {
    forget(slot);  // other adapters computed it, or it is somebody else's
    slot.lora_scales = spec.lora_scales;
    slot.cache_domain = spec.cache_domain;
  }
  const llama_memory_t memory = llama_get_memory(model_->context());
  std::int32_t n_cached = 0;
  if (spec.cache_prompt && !spec.prompt_logprobs) {
    // The last prompt token is always computed: its logits are the first token's.
    n_cached = std::min(reuse_cells(slot), n_prompt - 1);
  }
  keep_exact(slot, n_cached);
  if (deterministic_) n_cached = slot.n_exact;
  // A sliding window has already dropped the cells before pos_min; what needs them cannot be
  // reused.
  if (n_swa_ > 0 && n_cached > 0 &&
      llama_memory_seq_pos_min(memory, slot.sequence) > std::max(0, n_cached - n_swa_)) {
    n_cached = 0;
  }
  if (can_cut_) {
    cells_.free_from(slot.sequence, n_cached);
  } else if (!llama_memory_seq_rm(memory, slot.sequence, n_cached, -1)) {
    // Recurrent state cannot be cut: start over.
    llama_memory_seq_rm(memory, slot.sequence, -1, -1);
    n_cached = 0;
  }
  if (n_cached == 0) begin_at_first_cell(slot);
  draw_of(slot).is_open = false;
  keep_exact(slot, n_cached);
  slot.cells.resize(static_cast<std::size_t>(n_cached));
  cells_.note_cut(slot, n_cached);
  slot.has_moved_cells = slot.has_moved_cells && n_cached > 0;
  prefill_of(slot) = {.n_cached = n_cached, .n_told = n_cached};
  prefill_.begin(slot.id, n_prompt - n_cached);
  samplers_[static_cast<std::size_t>(slot.id)]->reset(
      spec.sampling, spec.logit_bias, &spec.dry_breakers, spec.prompt, spec.infill.get());
  return n_cached;
}

void HostStepper::keep_exact(Slot& slot, std::int32_t n) const noexcept {
  slot.n_exact = std::min(slot.n_exact, n / n_chunk_ * n_chunk_);
}

void HostStepper::begin_at_first_cell(const Slot& slot) noexcept {
  llama_context* context = model_->context();
  const llama_memory_t memory = llama_get_memory(context);
  const auto n_sequences = static_cast<llama_seq_id>(llama_n_seq_max(context));
  for (llama_seq_id sequence = 0; sequence < n_sequences; ++sequence) {
    if (llama_memory_seq_pos_max(memory, sequence) >= 0) return;
  }
  cells_.begin_at_first(slot.sequence);
}

std::int32_t HostStepper::reuse_cells(Slot& slot) {
  const RequestSpec& spec = *slot.spec;
  auto n_past = static_cast<std::int32_t>(common_prefix_length(slot.cells, spec.prompt));
  if (spec.n_cache_reuse <= 0 || !model_->can_shift() || deterministic_) return n_past;
  cells_.unpark_all();
  const llama_memory_t memory = llama_get_memory(model_->context());
  const std::int32_t n_common = n_past;
  // What other slots have as well stays where it is.
  const std::int32_t n_fixed = cells_.index().n_shared(slot.sequence);
  for_each_reusable_chunk(slot.cells, spec.prompt, n_past, n_fixed, spec.n_cache_reuse,
                          [&](const ReusableChunk& chunk) {
                            llama_memory_seq_rm(memory, slot.sequence, chunk.to, chunk.from);
                            llama_memory_seq_add(memory, slot.sequence, chunk.from,
                                                 chunk.from + chunk.n, chunk.to - chunk.from);
                            n_past += chunk.n;
                          });
  if (n_past > n_common) slot.has_moved_cells = true;
  cells_.note_cut(slot, n_common);
  return n_past;
}

void HostStepper::shift_context(Slot& slot, std::span<Slot> slots) {
  const ContextShift shift =
      plan_context_shift(*slot.spec, slot.n_cells(), n_ctx(), model_->adds_bos());
  const std::int32_t end = shift.n_keep + shift.n_discard;
  own_cells_beyond(slot, end, slots);
  const llama_memory_t memory = llama_get_memory(model_->context());
  llama_memory_seq_rm(memory, slot.sequence, shift.n_keep, end);
  llama_memory_seq_add(memory, slot.sequence, end, slot.n_cells(), -shift.n_discard);
  slot.cells.erase(slot.cells.begin() + shift.n_keep, slot.cells.begin() + end);
  keep_exact(slot, shift.n_keep);
  cells_.note_cut(slot, shift.n_keep);
  slot.has_moved_cells = true;
  ++slot.n_shifts;
}

std::size_t HostStepper::state_bytes(const Slot& slot) {
  return llama_state_seq_get_size(model_->context(), slot.sequence);
}

bool HostStepper::copy_state(const Slot& slot, std::span<std::byte> to) {
  return llama_state_seq_get_data(model_->context(), reinterpret_cast<std::uint8_t*>(to.data()),
                                  to.size(), slot.sequence) == to.size();
}

bool HostStepper::restore_state(Slot& slot, const SlotState& state) {
  forget(slot);
  const std::span<const std::byte> bytes = state.bytes();
  const std::size_t n_read = llama_state_seq_set_data(
      model_->context(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(),
      slot.sequence);
  const llama_memory_t memory = llama_get_memory(model_->context());
  const auto n_tokens = static_cast<std::int32_t>(state.tokens.size());
  if (n_read != bytes.size() || n_tokens > n_ctx() ||
      llama_memory_seq_pos_max(memory, slot.sequence) + 1 != n_tokens) {
    return false;
  }
  slot.cells = state.tokens;
  slot.n_exact = state.n_exact;
  slot.lora_scales = state.lora_scales;
  slot.cache_domain = state.cache_domain;
  return true;
}

void HostStepper::forget(Slot& slot) {
  slot.has_moved_cells = false;
  slot.n_exact = 0;
  if (cells_.is_usable()) return cells_.discard(slot);
  llama_memory_seq_rm(llama_get_memory(model_->context()), slot.sequence, -1, -1);
  slot.cells.clear();
}

}  // namespace unpaced
