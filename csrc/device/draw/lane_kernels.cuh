// A step's kernels for several rows. They differ from those of one in where a row's memory is
// found, and in that rows end together. Device code of sample_kernels.cu.
#pragma once

#include "device/draw/row_draw.cuh"
#include "device/launch/early_start.cuh"

namespace unpaced {
namespace {

__device__ __forceinline__ bool is_padding(const LaneRow& lane) { return lane.control == nullptr; }

__device__ StepRow row_of(const LaneKernelArguments& a, std::int32_t i) {
  const LaneRow& lane = a.lanes[i];
  return {.logits = a.logits + static_cast<std::int64_t>(i) * a.n_vocab,
          .n_vocab = a.n_vocab,
          .group_best = lane.group_best,
          .illegal = lane.illegal,
          .pause_tokens = lane.pause_tokens,
          .sampling = lane.sampling,
          .control = lane.control,
          .mailbox = lane.mailbox,
          .inputs = a.inputs.of_row(i, a.n_kv)};
}

// blockIdx.y is the row.
__global__ void scan_rows(const __grid_constant__ LaneKernelArguments a) {
  let_later_kernels_start(true);
  await_earlier_kernels();
  const LaneRow& lane = a.lanes[blockIdx.y];
  if (is_padding(lane)) return;
  scan(a.logits + static_cast<std::int64_t>(blockIdx.y) * a.n_vocab, a.n_vocab, lane.group_best,
       lane.illegal);
}

// The rows' tokens, which end_step() publishes and feeds: whether a row goes on hangs on the
// others. blockIdx.y is the row; rows do not wait for one another.
__global__ void __launch_bounds__(kThreads)
    draw_rows(const __grid_constant__ LaneKernelArguments a) {
  __shared__ StepRow row;
  await_earlier_kernels();
  const LaneRow& lane = a.lanes[blockIdx.y];
  if (is_padding(lane)) return;
  const bool needs_cluster = lane.sampling->needs_cluster;
  if (blockIdx.x > 0 && !needs_cluster) return;
  // Only launches that ran ahead of an exit find it set.
  if (lane.control->exited != 0) return;
  if (threadIdx.x == 0) row = row_of(a, static_cast<std::int32_t>(blockIdx.y));
  __syncthreads();
  DrawnToken drawn{};
  if (!draw_row(row, a.keys_are_far, needs_cluster, drawn)) return;
  row.control->drawn = drawn.token;
  row.control->stop = drawn.plan.stop;
  if (drawn.token >= 0) accept(*row.sampling, drawn.token);
}

// Why the row's steps end with the token, or without one.
struct FreeRowExit {
  __device__ LoopExit operator()(const StepRow& row, const StepPlan& plan, TokenId token) const {
    return exit_after(row, plan, token);
  }
};

// Publishes each row's token and feeds it to the row's next step. Where one row's steps end, so do
// all others': who decodes changes between steps, and nobody's tokens hang on when that was
// noticed. One warp, a thread a row.
template <class RowExit>
__device__ __forceinline__ void end_rows(const LaneKernelArguments& a, const RowExit& exit_of) {
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  const bool has_row = i < a.n_rows && !is_padding(a.lanes[i]);
  const std::int32_t first = __ffs(static_cast<int>(__ballot_sync(kAllLanes, has_row))) - 1;
  const StepRow row = row_of(a, has_row ? i : first);
  // As draw_rows(). Of all rows, or of none.
  const bool has_left = row.control->exited != 0;
  const StepPlan plan = read_plan(*row.control, row.control->stop);
  const TokenId token = row.control->drawn;
  LoopExit exit = exit_of(row, plan, token);
  const bool leaves = __any_sync(kAllLanes, has_left || exit != LoopExit::kNone) != 0;
  if (i == 0 && a.loops) cudaGraphSetConditional(a.loop, leaves ? 0U : 1U);
  if (!has_row || has_left) return;
  if (leaves && exit == LoopExit::kNone) exit = LoopExit::kStopped;
  // One store announces the token and what follows from it, as for a row alone.
  row.mailbox->entry[plan.step] = mailbox_entry(token, exit);
  row.control->step = plan.step + 1;
  if (token >= 0 && plan.step + 1 < plan.n_steps) feed(row, plan, token);
  if (leaves) row.control->exited = 1;
}

__global__ void end_step(const __grid_constant__ LaneKernelArguments a) {
  await_earlier_kernels();
  end_rows(a, FreeRowExit{});
}

// Of the first row that is a lane's: all leave together.
__global__ void guard_lanes(const LaneRow* lanes, cudaGraphConditionalHandle handle) {
  while (is_padding(*lanes)) ++lanes;
  cudaGraphSetConditional(handle, lanes->control->exited == 0 ? 1U : 0U);
}

}  // namespace
}  // namespace unpaced
