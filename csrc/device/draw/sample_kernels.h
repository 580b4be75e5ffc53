// The kernels of a step that are ours: the row of logits is scanned, a token drawn, published and
// fed back. Two launches, or three where several rows decode side by side; they can be captured
// into a graph. README.md has a map of what they are made of.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/launch/draw_launch.h"
#include "device/state/loop_state.h"

namespace unpaced {

// What one row of a step works on: the memory of a lane, and its part of the graph's.
struct StepRow {
  float* logits;  // n_vocab of them, 16-byte aligned; biases and penalties are written into it
  std::int32_t n_vocab;
  std::uint64_t* group_best;          // n_groups(n_vocab): best key of every group of logits
  std::int32_t* illegal;              // 1: a logit is NaN or +inf
  const std::uint32_t* pause_tokens;  // one bit a token: the loop is left after these
  DeviceSamplerState* sampling;
  LaneControl* control;
  LaneMailbox* mailbox;  // pinned
  StepInputs inputs;     // of the next step
};

// Of a step of one row.
struct StepKernelArguments {
  StepRow rows[1];
  cudaGraphConditionalHandle loop;  // of the WHILE node that the step is the body of, if `loops`
  bool loops;
  bool keys_are_far;  // as the DrawLaunch has it
};

// What a lane lends to its row of a step. All null: the row is padding, and nothing is drawn.
struct LaneRow {
  std::uint64_t* group_best;
  std::int32_t* illegal;
  const std::uint32_t* pause_tokens;
  DeviceSamplerState* sampling;
  LaneControl* control;
  LaneMailbox* mailbox;
  const std::uint32_t* mask_board;  // pinned; null: no grammar holds, or the host asks it
  float* kept_row;                  // n_vocab, 16-byte aligned: the logits as the model left them
};

// Of a step of several rows. Whose they are changes from launch to launch, the graph does not.
struct LaneKernelArguments {
  const LaneRow* lanes;  // in device memory, by row
  std::int32_t n_rows;
  std::int32_t n_vocab;  // a multiple of 4
  float* logits;         // 16-byte aligned, row by row
  StepInputs inputs;     // of the next step, likewise
  std::int32_t n_kv;     // of the window
  cudaGraphConditionalHandle loop;
  bool loops;
  bool keys_are_far;
};

[[nodiscard]] std::int32_t n_groups(std::int32_t n_vocab) noexcept;

// The code of the drawing kernel on the current device. Throws as card_code().
[[nodiscard]] CardCode step_kernel_code();

// Once before the first launch, for the current device: how to draw there. Throws as
// choose_draw_launch().
[[nodiscard]] DrawLaunch prepare_step_kernels(std::int32_t n_vocab, const DrawLimits& limits = {});

// Enqueues the kernel that has the IF node of `handle` skip its body after the loop has been left.
void launch_step_guard(const LaneControl* control, cudaGraphConditionalHandle handle,
                       cudaStream_t stream);

// Enqueues both kernels.
void launch_step_kernels(const StepKernelArguments& arguments, const DrawLaunch& draw,
                         cudaStream_t stream);

// The same for several rows, n_lanes at most. They end together, and one guard serves all.
[[nodiscard]] DrawLaunch prepare_lane_kernels(std::int32_t n_vocab, std::int32_t n_lanes,
                                              const DrawLimits& limits = {});
void launch_lane_guard(const LaneRow* lanes, cudaGraphConditionalHandle handle,
                       cudaStream_t stream);
void launch_lane_kernels(const LaneKernelArguments& arguments, const DrawLaunch& draw,
                         cudaStream_t stream);

// A step of one row or several, of which some draw under grammars: first as if there were none,
// then, where the row's mask refuses the token, once more under the mask.
// Source of the order: llama.cpp 0c1e57098 common/sampling.cpp:640-680.
[[nodiscard]] DrawLaunch prepare_masked_kernels(std::int32_t n_vocab, std::int32_t n_lanes,
                                                const DrawLimits& limits = {});
void launch_masked_kernels(const LaneKernelArguments& a, const DrawLaunch& draw,
                           cudaStream_t stream);

// Enqueues the kernel that indexes sampling->counts.entries after an upload.
void launch_index_counts(DeviceSamplerState* sampling, std::int32_t n_counts, cudaStream_t stream);

}  // namespace unpaced
