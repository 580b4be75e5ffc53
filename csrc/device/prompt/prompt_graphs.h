// Short prompts by one launch each: a CUDA graph for each number of rows (model/loop_memory.h) and
// window of KV cells, with the phases of a decode step (own_step.h) for so many tokens at once.
//
// Logits and KV have llama_decode's bits for the same tokens in one batch:
// docs/internals/prompts.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode/counters.h"
#include "device/llama/llama_bridge.h"
#include "device/loop/own_step.h"
#include "device/loop/window_graphs.h"
#include "device/prompt/prompt_inputs.h"
#include "device/state/cuda_memory.h"
#include "host/prompt_pass.h"
#include "model/decode_loop.h"

struct llama_context;

namespace unpaced {

// Decode thread only.
class PromptGraphs final : public PromptPass {
 public:
  // kernels: kOwn or kAuto. stall: how long the GPU may be silent; 0: for ever. The KV must be
  // empty, and cleared after. Throws std::runtime_error where this model's prompts cannot be
  // computed so.
  PromptGraphs(llama_context* context, std::int32_t n_vocab, StepKernels kernels,
               std::chrono::microseconds stall, Counters& counters);

  // Compares prompts with llama_decode: the same logits, bit by bit. Lengths whose kernels have not
  // the same bits, or with kAuto take longer, stay llama_decode's. The KV must be empty, and is
  // after. Throws EngineLost.
  void test();

  [[nodiscard]] const float* compute(const Slot& slot, std::span<const TokenId> tokens) override;
  // Captures one graph that a prompt has lacked, some 10 ms of this thread. False: there is none.
  // Throws EngineLost.
  bool use_idle_time() override;
  // Captures one graph that the next prompt may want, where its conversation goes on or another one
  // begins. Throws EngineLost.
  [[nodiscard]] bool wants_quiet_time() override;
  bool use_quiet_time() override;

  // One for each number of rows (prompt_rows()): it goes for every number of tokens that has them.
  [[nodiscard]] const std::vector<PromptLengthReport>& report() const noexcept { return report_; }

 private:
  // A prompt's logits and milliseconds.
  struct Run {
    std::vector<float> logits;
    double ms = 0;
  };

  [[nodiscard]] StepProgram program(const LlamaBridge& bridge);
  [[nodiscard]] bool serves(std::size_t n_tokens) const noexcept;
  [[nodiscard]] Window window_of(const CellPlan& plan) const noexcept;
  // Notes that the graph is to be captured.
  void want(const Window& window);
  void capture(const Window& window);
  // Which graphs the next prompt may want, by the cells that are in use.
  void foresee();
  void foresee(std::int32_t stream, std::int32_t n_used, std::size_t& n_left);
  // Enqueues inputs, graph, and the logits' way to the host, and enters the tokens into llama.cpp's
  // books.
  void enqueue(const Slot& slot, std::span<const TokenId> tokens, const CellPlan& plan,
               const Window& window);
  // Nothing of the prompt is left anywhere.
  void take_back(const Slot& slot);

  // prompt_self_test.cpp
  // Why graphs of more than kExactPromptTokens rows cannot serve several numbers of tokens; empty:
  // they can.
  [[nodiscard]] std::string why_no_longer_ones();
  [[nodiscard]] Run run_decode(const Slot& slot, std::span<const TokenId> tokens);
  [[nodiscard]] Run run_graph(const Slot& slot, std::span<const TokenId> tokens);
  void test(const Slot& slot, std::span<const TokenId> tokens, PromptLengthReport& told);

  llama_context* const context_;
  const StepKernels choice_;
  const std::chrono::microseconds stall_;
  Counters& counters_;
  LlamaBridge bridge_;
  OwnStep step_;
  PromptInputs inputs_;
  PinnedArray<float> logits_;
  WindowGraphs graphs_;
  std::vector<Window> wanted_;
  std::vector<Window> foreseen_;
  std::vector<std::int32_t> n_used_;  // by stream, as foresee() found it
  std::vector<PromptLengthReport> report_;
};

}  // namespace unpaced
