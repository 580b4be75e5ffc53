// Who launches each format's products: a source file a format, so that they compile beside one
// another.
#pragma once

#include "device/kernels/card.h"
#include "device/kernels/mat_mat/task.h"

struct CUstream_st;

namespace unpaced::mat_mat {

// A step of a row: its bytes, the multiple of which a row's steps are in number, and how far apart
// rows lie in shared memory, chosen so that eight rows' words are in banks of their own.
struct StepShape {
  std::int32_t bytes;
  std::int32_t row_steps;
  std::int32_t pitch;
};
inline constexpr StepShape kQ4KStep = {144, 1, 144};
inline constexpr StepShape kQ5KStep = {176, 1, 176};
inline constexpr StepShape kQ6KStep = {210, 8, 240};  // then a row's end is a multiple of 16 bytes
inline constexpr StepShape kQ80Step = {272, 1, 272};

using LaunchFormat = void (*)(const Task& task, bool is_gated, const Card& card,
                              CUstream_st* stream);

void launch_q4_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q5_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q6_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q8_0(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);

// Matrices of two formats, one after the other: the first format's first.
using LaunchPair = void (*)(const Task& task, const Card& card, CUstream_st* stream);

void launch_q4_k_and_q6_k(const Task& task, const Card& card, CUstream_st* stream);
void launch_q5_k_and_q6_k(const Task& task, const Card& card, CUstream_st* stream);

}  // namespace unpaced::mat_mat
