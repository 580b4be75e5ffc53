#include "device/prompt/prompt_graphs.h"

#include <llama.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "device/state/stream_wait.h"
#include "model/loop_memory.h"

namespace unpaced {
namespace {

// As llama_decode's wait: somebody waits for the first token.
constexpr std::chrono::milliseconds kSpinning{20};
constexpr std::size_t kMaxWanted = 16;
// Rows of the graphs that are captured before somebody lacks them. What a conversation goes on with
// has no fewer tokens: its template has some.
constexpr std::int32_t kForeseenRows = 16;
// The others stay those that prompts have lacked.
constexpr std::size_t kForeseenMost = kMaxPromptGraphs / 2;
constexpr std::size_t kFreeBytes = std::size_t{256} << 20U;  // what captures leave of the device

bool has_free_memory() {
  std::size_t n_free = 0;
  std::size_t n_total = 0;
  cuda_check(cudaMemGetInfo(&n_free, &n_total), "cudaMemGetInfo");
  return n_free >= kFreeBytes;
}

LlamaBridge::Most most_of(const llama_context* context) {
  if (!has_free_memory()) throw std::runtime_error("too little device memory is free");
  return {.n_tokens = kMaxPromptTokens,
          .n_kv = std::min(kMaxPromptCells, static_cast<std::int32_t>(llama_n_ctx(context)))};
}

}  // namespace

PromptGraphs::PromptGraphs(llama_context* context, std::int32_t n_vocab, StepKernels kernels,
                           std::chrono::microseconds stall, Counters& counters)
    : context_(context),
      choice_(kernels),
      stall_(stall),
      counters_(counters),
      bridge_(context, most_of(context)),
      step_(bridge_, StepKernels::kOwn),
      inputs_(most_of(context)),
      logits_(static_cast<std::size_t>(n_vocab)),
      graphs_(
          bridge_, [this](const LlamaBridge& bridge) { return program(bridge); },
          WindowLaunch::kStep, kMaxPromptGraphs) {
  if (bridge_.output_index() == nullptr) {
    throw std::runtime_error("a prompt's graph has logits of all tokens");
  }
  wanted_.reserve(kMaxWanted);
  n_used_.assign(static_cast<std::size_t>(bridge_.n_streams()), -1);
  for (std::int32_t n = 2; n <= kMaxPromptTokens; ++n) {
    if (n == prompt_rows(n)) report_.push_back({.n_tokens = n});
  }
}

StepProgram PromptGraphs::program(const LlamaBridge& bridge) {
  StepProgram program;
  step_.add_to(program, bridge);
  return program;
}

bool PromptGraphs::serves(std::size_t n_tokens) const noexcept {
  if (n_tokens < 2 || n_tokens > kMaxPromptTokens) return false;
  return report_[prompt_rows_index(prompt_rows(static_cast<std::int32_t>(n_tokens)))].why.empty();
}

Window PromptGraphs::window_of(const CellPlan& plan) const noexcept {
  const std::int32_t n_used = std::max(plan.n_used, *std::ranges::max_element(plan.cells) + 1);
  return {.stream = plan.stream,
          .n_kv = bridge_.window_cells(n_used),
          .n_tokens = prompt_rows(static_cast<std::int32_t>(plan.cells.size()))};
}

const float* PromptGraphs::compute(const Slot& slot, std::span<const TokenId> tokens) {
  if (!serves(tokens.size())) return nullptr;
  bool is_begun = false;
  try {
    const std::optional<CellPlan> plan = bridge_.plan_batch(slot.sequence, slot.n_cells(), tokens);
    if (!plan) return nullptr;
    const Window window = window_of(*plan);
    if (window.n_kv > kMaxPromptCells) return nullptr;
    if (!graphs_.has(window)) {
      want(window);
      return nullptr;
    }
    bridge_.synchronize_context();
    is_begun = true;
    enqueue(slot, tokens, *plan, window);
    await_stream(bridge_.stream(), stall_, kSpinning);
    return logits_.data();
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
    if (is_begun) take_back(slot);
    return nullptr;
  }
}

void PromptGraphs::enqueue(const Slot& slot, std::span<const TokenId> tokens, const CellPlan& plan,
                           const Window& window) {
  const cudaStream_t stream = bridge_.stream();
  const cudaGraphExec_t graph = graphs_.get(window);
  inputs_.upload(bridge_, slot, tokens, plan, window);
  cuda_check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
  cuda_check(cudaMemcpyAsync(logits_.data(), graphs_.logits(window), logits_.size() * sizeof(float),
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
  bridge_.commit(slot.sequence, slot.n_cells(), plan, tokens);  // while the GPU computes
}

void PromptGraphs::take_back(const Slot& slot) {
  await_stream(bridge_.stream(), stall_);
  llama_memory_seq_rm(llama_get_memory(context_), slot.sequence, slot.n_cells(), -1);
}

void PromptGraphs::want(const Window& window) {
  if (wanted_.size() < kMaxWanted && std::ranges::find(wanted_, window) == wanted_.end()) {
    wanted_.push_back(window);
  }
}

bool PromptGraphs::use_idle_time() {
  if (wanted_.empty()) return false;
  const Window window = wanted_.front();
  wanted_.erase(wanted_.begin());
  capture(window);
  return true;
}

bool PromptGraphs::wants_quiet_time() {
  foresee();
  return !foreseen_.empty();
}

bool PromptGraphs::use_quiet_time() {
  if (foreseen_.empty()) return false;
  const Window window = foreseen_.back();
  foreseen_.pop_back();
  capture(window);
  return true;
}

void PromptGraphs::foresee() {
  std::size_t n_left = kForeseenMost;
  bool is_new = false;
  for (std::int32_t stream = 0; stream < bridge_.n_streams(); ++stream) {
    const std::int32_t n_used = bridge_.n_used(stream);
    if (std::exchange(n_used_[static_cast<std::size_t>(stream)], n_used) == n_used) continue;
    if (!std::exchange(is_new, true)) foreseen_.clear();
    if (n_used > 0) foresee(stream, n_used, n_left);
    foresee(stream, 0, n_left);  // another conversation
  }
  // What was foreseen first is captured first.
  if (is_new) std::ranges::reverse(foreseen_);
}

void PromptGraphs::foresee(std::int32_t stream, std::int32_t n_used, std::size_t& n_left) {
  for (const PromptLengthReport& rows : report_) {
    if (n_left == 0) return;
    if (rows.n_tokens < kForeseenRows || !rows.why.empty()) continue;
    const Window window{.stream = stream,
                        .n_kv = bridge_.window_cells(n_used + rows.n_tokens),
                        .n_tokens = rows.n_tokens};
    if (window.n_kv > kMaxPromptCells) continue;
    --n_left;
    if (graphs_.has(window)) {
      graphs_.keep(window);
    } else if (std::ranges::find(foreseen_, window) == foreseen_.end()) {
      foreseen_.push_back(window);
    }
  }
}

void PromptGraphs::capture(const Window& window) {
  try {
    // What fails or does not fit is wanted again by the next prompt that lacks it.
    if (has_free_memory()) {
      // With what the first launch would do.
      cuda_check(cudaGraphUpload(graphs_.get(window), bridge_.stream()), "cudaGraphUpload");
    }
  } catch (const EngineLost&) {
    throw;
  } catch (const std::exception&) {
  }
  counters_.n_prompt_graphs.set(graphs_.size());
}

}  // namespace unpaced
