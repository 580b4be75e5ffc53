#include <cuda_device_runtime_api.h>

#include <stdexcept>

#include "device/draw/lane_kernels.cuh"
#include "device/draw/masked_kernels.cuh"
#include "device/draw/row_draw.cuh"
#include "device/draw/sample_kernels.h"
#include "device/launch/early_start.cuh"
#include "device/state/cuda_memory.h"

namespace unpaced {
namespace {

constexpr int kScanThreads = 256;

// blockIdx.y is the row.
__global__ void scan_row(const __grid_constant__ StepKernelArguments a) {
  let_later_kernels_start(true);
  await_earlier_kernels();
  const StepRow& row = a.rows[blockIdx.y];
  scan(row.logits, row.n_vocab, row.group_best, row.illegal);
}

// Whether another step follows, said once a step.
__device__ void set_loop(const StepKernelArguments& a, bool goes_on) {
  if (a.loops) cudaGraphSetConditional(a.loop, goes_on ? 1U : 0U);
}

// Feeds the row's token to its next step or ends its steps, and publishes it. One thread.
__device__ void finish_step(const StepKernelArguments& a, const StepRow& row, const StepPlan& plan,
                            TokenId token) {
  const std::int32_t n_steps_made = plan.step + 1;
  const LoopExit exit = exit_after(row, plan, token);
  // One store announces the token and what follows from it, so nothing needs to be ordered.
  row.mailbox->entry[plan.step] = mailbox_entry(token, exit);
  if (token >= 0) accept(*row.sampling, token);
  row.control->step = n_steps_made;
  if (exit == LoopExit::kNone || (exit == LoopExit::kPause && n_steps_made < plan.n_steps)) {
    feed(row, plan, token);
  }
  if (exit != LoopExit::kNone) row.control->exited = 1;
  set_loop(a, exit == LoopExit::kNone);
}

// The token of the only row, drawn, published and fed to its next step.
__global__ void __launch_bounds__(kThreads)
    draw_and_feed(const __grid_constant__ StepKernelArguments a) {
  await_earlier_kernels();
  const StepRow& row = a.rows[blockIdx.y];
  const bool needs_cluster = row.sampling->needs_cluster;
  if (blockIdx.x > 0 && !needs_cluster) return;
  // Only launches that ran ahead of an exit find it set.
  if (row.control->exited != 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) set_loop(a, false);
    return;
  }
  DrawnToken drawn{};
  if (draw_row(row, a.keys_are_far, needs_cluster, drawn)) {
    finish_step(a, row, drawn.plan, drawn.token);  // one store publishes it; nothing reads after it
  }
}

__global__ void guard_step(const LaneControl* control, cudaGraphConditionalHandle handle) {
  cudaGraphSetConditional(handle, control->exited == 0 ? 1U : 0U);
}

__global__ void index_counts(DeviceSamplerState* sampling, std::int32_t n_counts) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n_counts) sampling->counts.index[sampling->counts.entries[i].token] = i;
}

const void* draw_kernel() { return reinterpret_cast<const void*>(draw_and_feed); }

DrawRoom draw_room(std::int32_t n_vocab) {
  return {.roomy = sizeof(RoomyShared),
          .compact = sizeof(CompactShared),
          .keys = static_cast<std::size_t>(n_groups(n_vocab)) * sizeof(std::uint64_t)};
}

// Of kernels that scan n_rows rows.
struct ScanConfig {
  ScanConfig(const DrawLaunch& draw, std::int32_t n_vocab, std::int32_t n_rows, cudaStream_t stream)
      : early(early_start()) {
    const std::int32_t n_threads = (n_vocab + 3) / 4;
    const auto n_blocks = static_cast<unsigned>((n_threads + kScanThreads - 1) / kScanThreads);
    config.gridDim = dim3(n_blocks, static_cast<unsigned>(n_rows));
    config.blockDim = dim3(kScanThreads);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = draw.starts_early ? 1 : 0;
  }
  ScanConfig(const ScanConfig&) = delete;
  ScanConfig& operator=(const ScanConfig&) = delete;

  cudaLaunchAttribute early;
  cudaLaunchConfig_t config{};
};

}  // namespace

std::int32_t n_groups(std::int32_t n_vocab) noexcept { return (n_vocab + kGroup - 1) / kGroup; }

CardCode step_kernel_code() { return card_code(draw_kernel()); }

DrawLaunch prepare_step_kernels(std::int32_t n_vocab, const DrawLimits& limits) {
  StepKernelArguments none{};
  void* arguments[] = {&none};
  return choose_draw_launch(draw_kernel(), draw_room(n_vocab), limits, 1, arguments);
}

DrawLaunch prepare_lane_kernels(std::int32_t n_vocab, std::int32_t n_lanes,
                                const DrawLimits& limits) {
  LaneKernelArguments none{};
  void* arguments[] = {&none};
  return choose_draw_launch(reinterpret_cast<const void*>(draw_rows), draw_room(n_vocab), limits,
                            n_lanes, arguments);
}

void launch_step_guard(const LaneControl* control, cudaGraphConditionalHandle handle,
                       cudaStream_t stream) {
  guard_step<<<1, 1, 0, stream>>>(control, handle);
  cuda_check(cudaGetLastError(), "guard_step");
}

void launch_step_kernels(const StepKernelArguments& a, const DrawLaunch& draw,
                         cudaStream_t stream) {
  const ScanConfig scan(draw, a.rows[0].n_vocab, 1, stream);
  cuda_check(cudaLaunchKernelEx(&scan.config, scan_row, a), "scan_row");
  const DrawConfig config(draw, 1, stream);
  cuda_check(cudaLaunchKernelEx(&config.get(), draw_and_feed, a), "draw_and_feed");
}

void launch_lane_guard(const LaneRow* lanes, cudaGraphConditionalHandle handle,
                       cudaStream_t stream) {
  guard_lanes<<<1, 1, 0, stream>>>(lanes, handle);
  cuda_check(cudaGetLastError(), "guard_lanes");
}

void launch_lane_kernels(const LaneKernelArguments& a, const DrawLaunch& draw,
                         cudaStream_t stream) {
  const ScanConfig scan(draw, a.n_vocab, a.n_rows, stream);
  cuda_check(cudaLaunchKernelEx(&scan.config, scan_rows, a), "scan_rows");
  const DrawConfig config(draw, a.n_rows, stream);
  cuda_check(cudaLaunchKernelEx(&config.get(), draw_rows, a), "draw_rows");
  static_assert(kMaxLanes <= 32);
  end_step<<<1, 32, 0, stream>>>(a);
  cuda_check(cudaGetLastError(), "end_step");
}

DrawLaunch prepare_masked_kernels(std::int32_t n_vocab, std::int32_t n_lanes,
                                  const DrawLimits& limits) {
  LaneKernelArguments none{};
  bool is_second = false;
  void* arguments[] = {&none, &is_second};
  return choose_draw_launch(reinterpret_cast<const void*>(draw_masked_rows), draw_room(n_vocab),
                            limits, n_lanes, arguments);
}

void launch_masked_kernels(const LaneKernelArguments& a, const DrawLaunch& draw,
                           cudaStream_t stream) {
  const ScanConfig scan(draw, a.n_vocab, a.n_rows, stream);
  const DrawConfig config(draw, a.n_rows, stream);
  cuda_check(cudaLaunchKernelEx(&scan.config, scan_and_keep_rows, a), "scan_and_keep_rows");
  cuda_check(cudaLaunchKernelEx(&config.get(), draw_masked_rows, a, false), "draw_masked_rows");
  cuda_check(cudaLaunchKernelEx(&scan.config, mask_rows, a), "mask_rows");
  cuda_check(cudaLaunchKernelEx(&config.get(), draw_masked_rows, a, true), "draw_masked_rows");
  end_masked_step<<<1, 32, 0, stream>>>(a);
  cuda_check(cudaGetLastError(), "end_masked_step");
}

void launch_index_counts(DeviceSamplerState* sampling, std::int32_t n_counts, cudaStream_t stream) {
  if (n_counts == 0) return;
  constexpr std::int32_t kBlock = 256;
  const auto n_blocks = static_cast<unsigned>((n_counts + kBlock - 1) / kBlock);
  index_counts<<<n_blocks, kBlock, 0, stream>>>(sampling, n_counts);
  cuda_check(cudaGetLastError(), "index_counts");
}

}  // namespace unpaced
