#include <cfloat>
#include <stdexcept>

#include "device/kernels/experts/expert_choice.h"
#include "device/kernels/ggml_device.cuh"
#include "device/kernels/launch.cuh"

namespace unpaced {
namespace {

constexpr int kWarp = 32;

// The softmax's shares of the experts lane, lane + 32, …. Every warp has all of them.
template <int kPerLane>
__device__ void take_shares(float (&value)[kPerLane]) {
  float best = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) best = max(best, value[i]);
  best = warp_reduce_max(best);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    value[i] = expf(value[i] - best);
    sum += value[i];
  }
  sum = warp_reduce_sum(sum);
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    value[i] *= inverse;
    if (__isnanf(value[i])) value[i] = -FLT_MAX;
  }
}

// A thread an expert.
template <int kPerLane>
__global__ void __launch_bounds__(kWarp* kPerLane) choose_experts(const ExpertChoice choice) {
  __shared__ float shares[kWarp * kPerLane];
  __shared__ float chosen[kWarp];
  __shared__ int numbers[kWarp];
  let_later_kernels_start(choice.next_is_ours);
  const int expert = static_cast<int>(threadIdx.x);
  const int lane = expert % kWarp;
  await_earlier_kernels();
  float value[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) value[i] = choice.logits[lane + i * kWarp];
  take_shares(value);
  float own = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i == expert / kWarp) own = value[i];
  }
  shares[expert] = own;
  __syncthreads();  // all have read the logits, too
  int n_better = 0;
#pragma unroll 32
  for (int i = 0; i < kWarp * kPerLane; ++i) {
    const float other = shares[i];
    n_better += other > own || (other == own && i < expert) ? 1 : 0;
  }
  if (n_better < choice.n_chosen) {
    choice.experts[n_better] = expert;
    numbers[n_better] = expert;
    chosen[n_better] = own;
  }
  __syncthreads();
  if (expert < kWarp) {
    float weight = lane < choice.n_chosen ? chosen[lane] : 0.0f;
    if (choice.normalises) {
      // ggml's lane adds what it has of the chosen ones, in their order.
      float sum = 0.0f;
      for (int i = 0; i < choice.n_chosen; ++i) {
        if (numbers[i] % kWarp == lane) sum += chosen[i];
      }
      sum = warp_reduce_sum(sum);
      sum = max(sum, choice.least_sum);
      const float inverse = 1.0f / sum;
      weight *= inverse;
    }
    if (lane < choice.n_chosen) choice.weights[lane] = weight;
  }
  end_writes(choice.next_is_ours);
}

template <int kPerLane>
void enqueue(const ExpertChoice& choice, const Card& card, CUstream_st* stream) {
  if constexpr (kPerLane > 16) {
    throw std::runtime_error(why_no_expert_choice(choice.n_experts, choice.n_chosen));
  } else if (choice.n_experts > kWarp * kPerLane) {
    enqueue<kPerLane * 2>(choice, card, stream);
  } else {
    launch(choose_experts<kPerLane>, {dim3(1), dim3(kWarp * kPerLane)}, card, stream, choice);
  }
}

}  // namespace

void enqueue_expert_choice(const ExpertChoice& choice, const Card& card, CUstream_st* stream) {
  enqueue<1>(choice, card, stream);
}

}  // namespace unpaced
