// Who launches each format's products: a source file a format, so that they compile beside one
// another.
#pragma once

#include "device/kernels/card.h"
#include "device/kernels/mat_mat/task.h"

struct CUstream_st;

namespace unpaced::mat_mat {

using LaunchFormat = void (*)(const Task& task, bool is_gated, const Card& card,
                              CUstream_st* stream);

void launch_q4_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q5_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q6_k(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);
void launch_q8_0(const Task& task, bool is_gated, const Card& card, CUstream_st* stream);

}  // namespace unpaced::mat_mat
