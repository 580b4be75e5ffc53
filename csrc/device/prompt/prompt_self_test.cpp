// PromptGraphs beside llama_decode, at the start.
#include <llama.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "decode/engine_lost.h"
#include "device/graph/row_padding.h"
#include "device/kernels/card.h"
#include "device/prompt/prompt_graphs.h"
#include "model/loop_memory.h"

namespace unpaced {
namespace {

using Clock = std::chrono::steady_clock;

// Rows: one for each number of columns that kernels of ours are built for; those between have the
// kernels of the next one.
constexpr std::int32_t kTested[] = {2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128};
// Of the rows of longer ones so many are no token's.
constexpr std::int32_t kPadding = 3;
// So much quicker than llama_decode neither is timed twice.
constexpr double kClearly = 1.5;
// Tokens before the prompt: so that positions are not the rows' numbers.
constexpr std::int32_t kTokensBefore = 5;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void decode(llama_context* context, std::span<const TokenId> tokens) {
  std::vector<TokenId> copy(tokens.begin(), tokens.end());
  const auto n = static_cast<std::int32_t>(copy.size());
  if (llama_decode(context, llama_batch_get_one(copy.data(), n)) != 0)
    throw std::runtime_error("self-test of a prompt: llama_decode failed");
}

}  // namespace

void PromptGraphs::test() {
  const llama_memory_t memory = llama_get_memory(context_);
  const std::int32_t n_room = std::min(static_cast<std::int32_t>(llama_n_ubatch(context_)),
                                       bridge_.n_cells() - kTokensBefore - 1);
  std::vector<TokenId> tokens(kTokensBefore + kMaxPromptTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>((6007 * i + 17) % logits_.size());
  }
  Slot slot;
  slot.cells.assign(tokens.begin(), tokens.begin() + kTokensBefore);
  const std::span<const TokenId> prompt = std::span(tokens).subspan(kTokensBefore);
  const std::string why_shorter = why_no_longer_ones();
  // The longest first: it takes the memory that the others have, too.
  for (const std::int32_t n_rows : std::views::reverse(kTested)) {
    PromptLengthReport& told = report_[prompt_rows_index(n_rows)];
    const bool is_exact = n_rows <= kExactPromptTokens;
    try {
      if (!is_exact && !why_shorter.empty()) throw std::runtime_error(why_shorter);
      if (n_rows > n_room) throw std::runtime_error("batches or contexts are smaller");
      llama_memory_clear(memory, true);
      decode(context_, slot.cells);
      test(slot, prompt.first(static_cast<std::size_t>(is_exact ? n_rows : n_rows - kPadding)),
           told);
    } catch (const EngineLost&) {
      throw;
    } catch (const std::exception& e) {
      told.why = e.what();
    }
  }
  for (PromptLengthReport& told : report_) {
    const std::int32_t tested = *std::ranges::lower_bound(kTested, told.n_tokens);
    told.why = report_[prompt_rows_index(tested)].why;
  }
  llama_memory_clear(memory, true);
  counters_.n_prompt_graphs.set(graphs_.size());
}

std::string PromptGraphs::why_no_longer_ones() {
  bridge_.open({.stream = 0, .n_kv = bridge_.window_cells(1), .n_tokens = kExactPromptTokens + 1});
  return why_no_row_padding(bridge_.graph(), find_card(bridge_.device()).compute);
}

PromptGraphs::Run PromptGraphs::run_decode(const Slot& slot, std::span<const TokenId> tokens) {
  const Clock::time_point begin = Clock::now();
  decode(context_, tokens);
  const float* row = llama_get_logits_ith(context_, -1);
  Run run{.logits = {row, row + logits_.size()}, .ms = ms_since(begin)};
  llama_memory_seq_rm(llama_get_memory(context_), slot.sequence, slot.n_cells(), -1);
  return run;
}

PromptGraphs::Run PromptGraphs::run_graph(const Slot& slot, std::span<const TokenId> tokens) {
  const Clock::time_point begin = Clock::now();
  const float* row = compute(slot, tokens);
  if (row == nullptr) throw std::runtime_error("self-test of a prompt: it cannot be launched");
  Run run{.logits = {row, row + logits_.size()}, .ms = ms_since(begin)};
  llama_memory_seq_rm(llama_get_memory(context_), slot.sequence, slot.n_cells(), -1);
  return run;
}

void PromptGraphs::test(const Slot& slot, std::span<const TokenId> tokens,
                        PromptLengthReport& told) {
  const Run expected = run_decode(slot, tokens);
  static_cast<void>(compute(slot, tokens));  // it says which graph it wants
  const Clock::time_point begin = Clock::now();
  if (!use_idle_time()) throw std::runtime_error("self-test of a prompt: there is no cell");
  told.capture_ms = ms_since(begin);
  for (int round = 0; round < 2; ++round) {
    const Run made = run_graph(slot, tokens);
    if (std::memcmp(made.logits.data(), expected.logits.data(), logits_.size() * sizeof(float)) !=
        0) {
      throw std::runtime_error("self-test of a prompt: the logits differ from llama_decode's");
    }
    told.own_ms = round == 0 ? made.ms : std::min(told.own_ms, made.ms);
    if (kClearly * told.own_ms < expected.ms) break;
  }
  told.decode_ms = expected.ms;
  if (choice_ != StepKernels::kAuto || kClearly * told.own_ms < expected.ms) return;
  told.decode_ms = std::min(expected.ms, run_decode(slot, tokens).ms);
  if (told.own_ms > told.decode_ms) throw std::runtime_error("it is slower than llama_decode here");
}

}  // namespace unpaced
