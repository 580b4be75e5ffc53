// The experts of a mixture that a token goes to, and their weights, in one launch.
//
// Bits: topk_moe_cuda of ggml-cuda's topk-moe.cu, with a softmax before the choice and without bias
// or scale. The sums are in its order; who is chosen is found by counting how many are better.
#pragma once

#include <cstdint>
#include <string>

#include "device/kernels/card.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

struct ExpertChoice {
  const float* logits = nullptr;
  std::int32_t* experts = nullptr;  // n_chosen, the best first; may be in the memory of logits
  float* weights = nullptr;         // n_chosen; likewise
  std::int32_t n_experts = 0;
  std::int32_t n_chosen = 0;
  bool normalises = false;  // weights add up to one
  float least_sum = 0;      // of the chosen ones' shares
  bool next_is_ours = false;
};

// Why there is no kernel for so many, as a sentence; empty: there is.
[[nodiscard]] std::string why_no_expert_choice(std::int64_t n_experts, std::int64_t n_chosen);

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_expert_choice(const ExpertChoice& choice, const Card& card, CUstream_st* stream);

}  // namespace unpaced
