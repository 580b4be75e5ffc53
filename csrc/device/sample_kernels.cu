#include <cuda_device_runtime_api.h>

#include <stdexcept>

#include "device/cuda_memory.h"
#include "device/row_selection.cuh"
#include "device/sample_kernels.h"
#include "device/warp_chain.cuh"

namespace unpaced {
namespace {

constexpr int kScanThreads = 256;

// The best key of every group, four logits a thread, eight threads a group.
__global__ void scan_row(const float* logits, std::int32_t n_vocab, std::uint64_t* group_best,
                         std::int32_t* illegal) {
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * 4;
  float x[4];
  if (first + 3 < n_vocab) {
    const float4 four = *reinterpret_cast<const float4*>(logits + first);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
    for (int i = 0; i < 4; ++i) x[i] = first + i < n_vocab ? logits[first + i] : -kInfinity;
  }
  std::uint64_t best = 0;
  bool legal = true;
  for (int i = 0; i < 4; ++i) {
    legal = legal && x[i] < kInfinity;
    if (first + i < n_vocab) best = greater(best, key_of(x[i], first + i));
  }
  for (int offset = 4; offset > 0; offset /= 2) {
    best = greater(best, __shfl_xor_sync(kAllLanes, best, offset));
  }
  if (threadIdx.x % 8 == 0 && first < n_vocab) group_best[first / kGroup] = best;
  if (!legal) *illegal = 1;
}

// The token joins the text that the penalties see. One thread.
__device__ void accept(DeviceSampling& s, TokenId token) {
  if (s.penalty_last_n == 0) return;
  count_token(s.counts, token);
  if (s.history_size >= s.penalty_last_n) {
    uncount_token(s.counts, s.history[s.history_size - s.penalty_last_n]);
  }
  s.history[s.history_size++] = token;
}

// What the end of a step needs of the control block, read at its beginning.
struct StepPlan {
  std::int32_t step;
  std::int32_t n_steps;
  std::int32_t position;
  std::int32_t next_cell;
  std::int64_t first_cell;
  std::uint32_t stop;  // a bus away
};

__device__ StepPlan read_plan(const LoopControl& control, const LoopMailbox& mailbox) {
  StepPlan plan{};
  plan.stop = mailbox.stop;
  plan.step = control.step;
  plan.n_steps = control.n_steps;
  plan.position = control.position;
  plan.first_cell = control.first_cell;
  plan.next_cell = control.cell[min(plan.step + 1, kMaxSteps - 1)];
  return plan;
}

// Feeds the step's token to the next step or leaves the loop, and publishes it. One thread.
__device__ void finish_step(const StepKernelArguments& a, const StepPlan& plan, TokenId token) {
  const std::int32_t n_steps_made = plan.step + 1;
  LoopExit exit = LoopExit::kNonFinite;
  if (token >= 0) {
    const bool pauses = (a.pause_tokens[token / 32] >> (token % 32) & 1U) != 0U;
    exit = pauses                         ? LoopExit::kPause
           : n_steps_made >= plan.n_steps ? LoopExit::kSteps
           : plan.stop != 0U              ? LoopExit::kStopped
                                          : LoopExit::kNone;
  }
  // One store announces the token and what follows from it, so nothing needs to be ordered.
  a.mailbox->entry[plan.step] = mailbox_entry(token, exit);
  if (token >= 0) accept(*a.sampling, token);
  a.control->step = n_steps_made;
  if (exit == LoopExit::kNone || (exit == LoopExit::kPause && n_steps_made < plan.n_steps)) {
    *a.inputs.token = token;
    *a.inputs.position = plan.position + n_steps_made;
    *a.inputs.k_index = plan.first_cell + plan.next_cell;
    *a.inputs.v_index = plan.first_cell + plan.next_cell;
    a.inputs.mask[plan.next_cell] = 0;  // +0.0 in F16: visible
  }
  if (exit != LoopExit::kNone) a.control->exited = 1;
  if (a.loops) cudaGraphSetConditional(a.loop, exit == LoopExit::kNone ? 1U : 0U);
}

__global__ void __launch_bounds__(kThreads) draw_and_feed(const StepKernelArguments a) {
  extern __shared__ std::uint64_t keys[];  // of the groups, then Shared
  const std::int32_t n = (a.n_vocab + kGroup - 1) / kGroup;
  Shared& shared = *reinterpret_cast<Shared*>(keys + n);
  // Only launches that ran ahead of an exit find it set.
  if (a.control->exited != 0) {
    if (a.loops && threadIdx.x == 0) cudaGraphSetConditional(a.loop, 0U);
    return;
  }
  StepPlan plan{};
  if (threadIdx.x == 0) plan = read_plan(*a.control, *a.mailbox);
  if (threadIdx.x == kThreads - 1) shared.u = a.sampling->streams.rng.next_f64();
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) keys[i] = a.group_best[i];
  __syncthreads();
  adjust_row(a, keys);
  std::uint64_t best = 0;
  for (std::int32_t i = threadIdx.x; i < n; i += kThreads) best = greater(best, keys[i]);
  best = warp_greatest(best);
  if (threadIdx.x % 32 == 0) shared.best_of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  best = warp_greatest(shared.best_of_warp[threadIdx.x % 32]);
  const bool legal = *a.illegal == 0 && logit_of(best) > -kInfinity;
  std::int32_t n_listed = 0;
  if (legal) n_listed = select_top(a, keys, shared, a.sampling->top_k, best);
  if (threadIdx.x >= 32) return;
  const TokenId token = legal ? warp_chain(*a.sampling, shared, n_listed) : -1;
  if (threadIdx.x != 0) return;
  if (!legal) *a.illegal = 0;
  finish_step(a, plan, token);
}

__global__ void index_counts(DeviceSampling* sampling, std::int32_t n_counts) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n_counts) sampling->counts.index[sampling->counts.entries[i].token] = i;
}

std::size_t shared_bytes(std::int32_t n_vocab) {
  return static_cast<std::size_t>(n_groups(n_vocab)) * sizeof(std::uint64_t) + sizeof(Shared);
}

}  // namespace

std::int32_t n_groups(std::int32_t n_vocab) noexcept { return (n_vocab + kGroup - 1) / kGroup; }

void prepare_step_kernels(std::int32_t n_vocab) {
  if (cudaFuncSetAttribute(draw_and_feed, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes(n_vocab))) != cudaSuccess) {
    cudaGetLastError();
    throw std::runtime_error("the vocabulary is too large for the device's shared memory");
  }
}

void launch_step_kernels(const StepKernelArguments& a, cudaStream_t stream) {
  const std::int32_t n_threads = (a.n_vocab + 3) / 4;
  const auto n_blocks = static_cast<unsigned>((n_threads + kScanThreads - 1) / kScanThreads);
  scan_row<<<n_blocks, kScanThreads, 0, stream>>>(a.logits, a.n_vocab, a.group_best, a.illegal);
  cuda_check(cudaGetLastError(), "scan_row");
  draw_and_feed<<<1, kThreads, shared_bytes(a.n_vocab), stream>>>(a);
  cuda_check(cudaGetLastError(), "draw_and_feed");
}

void launch_index_counts(DeviceSampling* sampling, std::int32_t n_counts, cudaStream_t stream) {
  if (n_counts == 0) return;
  constexpr std::int32_t kBlock = 256;
  const auto n_blocks = static_cast<unsigned>((n_counts + kBlock - 1) / kBlock);
  index_counts<<<n_blocks, kBlock, 0, stream>>>(sampling, n_counts);
  cuda_check(cudaGetLastError(), "index_counts");
}

}  // namespace unpaced
