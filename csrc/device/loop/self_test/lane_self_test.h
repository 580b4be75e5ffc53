// The self-test of steps that several sequences make together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/llama/llama_bridge.h"
#include "device/loop/device_loop.h"
#include "model/model.h"
#include "sampling/sampler.h"
#include "slots/slot.h"

namespace unpaced {

class TokenBatch;

// Decode thread only. Throws std::runtime_error. The KV is cleared before.
class LaneSelfTest {
 public:
  // A sequence for each of the loop's lanes, with a prompt of a length of its own. as_alone: steps
  // are to have the logits of llama_decode's batches of one sequence each, not of all.
  LaneSelfTest(const Model& model, LlamaBridge& bridge, DeviceLoop& loop, bool as_alone);
  ~LaneSelfTest();
  LaneSelfTest(const LaneSelfTest&) = delete;
  LaneSelfTest& operator=(const LaneSelfTest&) = delete;

  // The KV, after all. Not where something was thrown: a GPU that hangs would have this thread
  // wait.
  void clear();
  // Steps of the first n_rows sequences: throws unless they have the logits of llama_decode's
  // batches, bit by bit, and the tokens that the host's samplers draw from them.
  void check(std::size_t n_rows);
  // Seconds of the GPU that such a step's graph takes, without the draw. After check().
  [[nodiscard]] double step_seconds(std::size_t n_rows, std::chrono::microseconds limit);

 private:
  struct Step {
    std::vector<float> logits;    // row by row
    std::vector<TokenId> tokens;  // drawn from them
  };

  void decode_prompts();
  [[nodiscard]] std::span<Slot* const> members(std::size_t n_rows) const {
    return std::span(members_).first(n_rows);
  }
  // As they were after their prompts.
  void go_back(std::size_t n_rows);
  void decode(const TokenBatch& batch);
  // Each of the sequences' next token, and takes what it leaves.
  void decode_next(std::span<Slot* const> members, Step& made);
  [[nodiscard]] std::vector<Step> decode_steps(std::size_t n_rows);
  // Opens the window of the sequences' next step, and makes its inputs ready.
  [[nodiscard]] std::vector<CellPlan> open_next(std::span<Slot* const> members);
  // expected: of the first sequences, whose number makes up a graph.
  void compare_logits(std::span<Slot* const> members, const std::vector<Step>& expected);
  void compare_tokens(std::size_t n_rows, const std::vector<Step>& expected);
  // What the lanes have drawn since: of the steps from n_steps on.
  void take(std::size_t n_rows, std::int32_t n_published, const std::vector<Step>& expected,
            std::size_t& n_steps);

  const Model& model_;
  LlamaBridge& bridge_;
  DeviceLoop& loop_;
  const bool as_alone_;
  const std::size_t n_vocab_;
  std::vector<Slot> slots_;
  std::vector<Slot*> members_;
  std::vector<RequestSpec> specs_;
  std::vector<Sampler> samplers_;
  std::vector<std::vector<TokenId>> prompts_;
};

}  // namespace unpaced
