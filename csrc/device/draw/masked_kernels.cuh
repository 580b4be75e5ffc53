// A step's kernels where rows draw under grammars. A row's mask comes while the model computes,
// from the thread that runs the grammar, into memory that both see (grammar/mask_board.h): the GPU
// need not leave its loop for it. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/lane_kernels.cuh"
#include "grammar/mask_board.h"

namespace unpaced {
namespace {

// How long a step waits for a mask that is late: about what leaving the loop costs instead
// (docs/bench/device.md).
constexpr std::uint64_t kMaskWaitNs = 300'000;
constexpr unsigned kMaskNapNs = 500;

__device__ __forceinline__ std::uint64_t now_ns() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// acquire: pairs with MaskBoard::write().
__device__ __forceinline__ std::uint32_t read_mask_step(const std::uint32_t* board) {
  std::uint32_t step = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(step) : "l"(board) : "memory");
  return step;
}

// The host writes it anew for every step: never from a cache.
__device__ __forceinline__ std::uint32_t read_mask_word(const std::uint32_t* board,
                                                        std::int32_t word) {
  return static_cast<const volatile std::uint32_t*>(board)[kMaskBoardHead + word];
}

__device__ inline bool allows(const std::uint32_t* board, TokenId token) {
  return (read_mask_word(board, token / 32) >> (token % 32) & 1U) != 0U;
}

// Whether the mask of the step comes in time. One thread.
__device__ inline bool await_mask(const std::uint32_t* board, std::uint32_t step) {
  const std::uint64_t begin = now_ns();
  for (;;) {
    const std::uint32_t found = read_mask_step(board);
    if (found == step) return true;
    if (found == (step | kMaskLeftOut) || now_ns() - begin > kMaskWaitNs) return false;
    __nanosleep(kMaskNapNs);
  }
}

// What the row's grammar says of the token. One thread.
__device__ inline MaskVerdict judge(const LaneRow& lane, std::int32_t step, TokenId token) {
  if (lane.mask_board == nullptr || token < 0) return MaskVerdict::kAllowed;
  const std::uint32_t mask_step = lane.control->mask_step + static_cast<std::uint32_t>(step);
  if (!await_mask(lane.mask_board, mask_step)) return MaskVerdict::kLate;
  return allows(lane.mask_board, token) ? MaskVerdict::kAllowed : MaskVerdict::kRefused;
}

// scan_rows(), which keeps the rows that may be drawn from twice: the first draw writes biases and
// penalties into them. blockIdx.y is the row.
__global__ void scan_and_keep_rows(const __grid_constant__ LaneKernelArguments a) {
  let_later_kernels_start(true);
  await_earlier_kernels();
  const LaneRow& lane = a.lanes[blockIdx.y];
  if (is_padding(lane)) return;
  const std::int32_t first = first_of_four();
  float x[4];
  read_four(a.logits + static_cast<std::int64_t>(blockIdx.y) * a.n_vocab, a.n_vocab, first, x);
  if (lane.mask_board != nullptr) write_four(lane.kept_row, a.n_vocab, first, x);
  scan_four(x, a.n_vocab, first, lane.group_best, lane.illegal);
}

// The rows' tokens, which end_masked_step() publishes: drawn as if there were no grammars; or, the
// second time, of the rows whose grammar has refused the first. blockIdx.y is the row.
__global__ void __launch_bounds__(kThreads)
    draw_masked_rows(const __grid_constant__ LaneKernelArguments a, bool is_second) {
  __shared__ StepRow row;
  await_earlier_kernels();
  const LaneRow& lane = a.lanes[blockIdx.y];
  if (is_padding(lane)) return;
  const bool needs_cluster = lane.sampling->needs_cluster;
  if (blockIdx.x > 0 && !needs_cluster) return;
  // Only launches that ran ahead of an exit find it set.
  if (lane.control->exited != 0) return;
  if (is_second && lane.control->verdict != MaskVerdict::kRefused) return;
  if (threadIdx.x == 0) row = row_of(a, static_cast<std::int32_t>(blockIdx.y));
  __syncthreads();
  DrawnToken drawn{};
  if (!draw_row(row, a.keys_are_far, needs_cluster, drawn)) return;
  // One thread from here on. No block reads the verdict of this kernel's own draw.
  TokenId token = drawn.token;
  if (!is_second) {
    const MaskVerdict verdict = judge(lane, drawn.plan.step, token);
    row.control->verdict = verdict;
    row.control->stop = drawn.plan.stop;
    if (verdict == MaskVerdict::kRefused) return;
  } else if (token >= 0 && !allows(lane.mask_board, token)) {
    token = -1;
  }
  row.control->drawn = token;
  if (token >= 0) accept(*row.sampling, token);
}

// Gives the rows that were refused their logits back, with -inf for every token that the mask has
// no bit for. As scan_rows() otherwise: 1024 logits a block, which are 32 words of the mask.
__global__ void mask_rows(const __grid_constant__ LaneKernelArguments a) {
  __shared__ std::uint32_t mask[kMaskBoardRun];
  let_later_kernels_start(true);
  await_earlier_kernels();
  const LaneRow& lane = a.lanes[blockIdx.y];
  if (is_padding(lane) || lane.control->exited != 0 ||
      lane.control->verdict != MaskVerdict::kRefused) {
    return;
  }
  if (threadIdx.x < kMaskBoardRun) {
    const auto word = static_cast<std::int32_t>(blockIdx.x * kMaskBoardRun + threadIdx.x);
    mask[threadIdx.x] = read_mask_word(lane.mask_board, word);
  }
  __syncthreads();
  const std::int32_t first = first_of_four();
  float x[4];
  read_four(lane.kept_row, a.n_vocab, first, x);
  const std::uint32_t bits = mask[threadIdx.x / 8] >> (threadIdx.x % 8 * 4);
  for (int i = 0; i < 4; ++i) x[i] = (bits >> i & 1U) != 0U ? x[i] : -kInfinity;
  write_four(a.logits + static_cast<std::int64_t>(blockIdx.y) * a.n_vocab, a.n_vocab, first, x);
  scan_four(x, a.n_vocab, first, lane.group_best, lane.illegal);
}

struct MaskedRowExit {
  __device__ LoopExit operator()(const StepRow& row, const StepPlan& plan, TokenId token) const {
    const MaskVerdict verdict = row.control->verdict;
    if (token < 0 && verdict == MaskVerdict::kRefused) return LoopExit::kBarred;
    if (token >= 0 && verdict == MaskVerdict::kLate) return LoopExit::kAsk;
    return exit_after(row, plan, token);
  }
};

// end_step(). One warp, a thread a row.
__global__ void end_masked_step(const __grid_constant__ LaneKernelArguments a) {
  await_earlier_kernels();
  end_rows(a, MaskedRowExit{});
}

}  // namespace
}  // namespace unpaced
