// The formats whose mat-vecs are ours, and who launches each: a source file a format, so that they
// compile beside one another.
#pragma once

#include "device/kernels/card.h"
#include "device/kernels/mat_vec/plan.h"

struct CUstream_st;

namespace unpaced::mat_vec {

using LaunchFormat = void (*)(const Build& build, const Plan& plan, const Card& card,
                              CUstream_st* stream);

using LaunchPair = void (*)(const Build& build, const PlanPair& plans, const Card& card,
                            CUstream_st* stream);

void launch_q4_k(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_q5_k(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_q6_k(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_q8_0(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_q4_0(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_q5_0(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_iq4_xs(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_mxfp4(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_f32(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_f16(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_f16_of_glu(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);
void launch_bf16(const Build& build, const Plan& plan, const Card& card, CUstream_st* stream);

// Q and K beside a V of more bits.
void launch_q4_k_and_q6_k(const Build& build, const PlanPair& plans, const Card& card,
                          CUstream_st* stream);
void launch_q5_k_and_q6_k(const Build& build, const PlanPair& plans, const Card& card,
                          CUstream_st* stream);
void launch_iq4_xs_and_q5_k(const Build& build, const PlanPair& plans, const Card& card,
                            CUstream_st* stream);

}  // namespace unpaced::mat_vec
