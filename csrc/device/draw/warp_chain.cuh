// The sampling chain on a list of candidates, by one warp. Device code of sample_kernels.cu.
//
// What every request has (top-p, min-p, temperature, the draw) is done by all lanes, with the
// arithmetic of the sampling core's headers: each element's value depends on that element alone,
// and every sum is made in the candidates' order. Lane 0 does the rest with those headers
// themselves.
#pragma once

#include "device/draw/row_selection.cuh"
#include "sampling/candidates/softmax.h"
#include "sampling/chain/min_p.h"
#include "sampling/chain/temperature.h"
#include "sampling/chain/top_k.h"
#include "sampling/chain/top_n_sigma.h"
#include "sampling/chain/top_p.h"
#include "sampling/chain/typical_p.h"
#include "sampling/chain/xtc.h"

namespace unpaced {

// Every lane holds the same Candidates; its arrays are in shared memory.
__device__ inline float warp_max_logit(const Candidates& c) {
  if (c.sorted) return c.data[0].logit;
  float best = -kInfinity;
  for (std::int32_t i = threadIdx.x % 32; i < c.size; i += 32) best = fmaxf(best, c.data[i].logit);
  for (int offset = 16; offset > 0; offset /= 2) {
    best = fmaxf(best, __shfl_xor_sync(kAllLanes, best, offset));
  }
  return best;
}

__device__ inline void warp_exp(Candidates& c, float best) {
  for (std::int32_t i = threadIdx.x % 32; i < c.size; i += 32) {
    c.data[i].p = exp_f32(c.data[i].logit - best);
  }
  __syncwarp();
}

__device__ inline void warp_keep_top_p(Candidates& c, float p, std::int32_t min_keep) {
  warp_exp(c, c.data[0].logit);
  float sum = 0.0F;
#pragma unroll 8
  for (std::int32_t i = 0; i < c.size; ++i) sum += c.data[i].p;
  float* shares = reinterpret_cast<float*>(c.scratch);
  for (std::int32_t i = threadIdx.x % 32; i < c.size; i += 32) shares[i] = c.data[i].p / sum;
  __syncwarp();
  float cumulative = 0.0F;
  std::int32_t n = c.size;
#pragma unroll 4
  for (std::int32_t i = 0; i < c.size; ++i) {
    cumulative += shares[i];
    if (cumulative >= p && i + 1 >= min_keep && i + 1 < n) n = i + 1;
  }
  c.size = n;
  __syncwarp();
}

__device__ inline void warp_keep_min_p(Candidates& c, float log_p, std::int32_t min_keep) {
  const float threshold = c.data[0].logit + log_p;
  std::int32_t n = 0;
  for (std::int32_t base = 0; base < c.size; base += 32) {
    const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x % 32U);
    n += __popc(__ballot_sync(kAllLanes, i < c.size && c.data[i].logit >= threshold));
  }
  c.size = max(1, max(n, min(min_keep, c.size)));
}

__device__ inline void warp_divide(Candidates& c, float divisor) {
  for (std::int32_t i = threadIdx.x % 32; i < c.size; i += 32) c.data[i].logit /= divisor;
  __syncwarp();
}

__device__ inline void serial_link(Candidates& c, SamplerKind kind, DeviceSamplerState& s) {
  const SamplingParams& p = s.params;
  switch (kind) {
    case SamplerKind::kPenalties:
      return penalise(c, s.counts, s.penalties);
    case SamplerKind::kTopNSigma:
      return ban_below_n_sigma(c, p.top_n_sigma);
    case SamplerKind::kTopK:
      return keep_top_k(c, p.top_k);
    case SamplerKind::kTypicalP:
      return keep_typical_p(c, p.typical_p, p.min_keep);
    case SamplerKind::kTopP:
      return keep_top_p(c, p.top_p, p.min_keep);
    case SamplerKind::kMinP:
      return keep_min_p(c, p.min_p, s.log_min_p, p.min_keep);
    case SamplerKind::kXtc:
      if (xtc_strikes(c.size, p.xtc_probability, s.streams.xtc)) {
        exclude_top_choices(c, p.xtc_threshold, p.min_keep);
      }
      return;
    case SamplerKind::kTemperature:
      return apply_dynamic_temperature(c, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
    case SamplerKind::kDry:
      return;  // chains with DRY after the selection are wide
  }
}

// The list is the arrays' beginning or, after XTC, later; so its place is passed on as an offset.
__device__ inline void warp_serial_link(Candidates& c, SamplerKind kind, DeviceSamplerState& s) {
  __syncwarp();
  std::int32_t moved = 0;
  Candidate* before = c.data;
  if (threadIdx.x % 32 == 0) {
    serial_link(c, kind, s);
    moved = static_cast<std::int32_t>(c.data - before);
  }
  c.data = before + __shfl_sync(kAllLanes, moved, 0);
  c.size = __shfl_sync(kAllLanes, c.size, 0);
  c.sorted = __shfl_sync(kAllLanes, static_cast<int>(c.sorted), 0) != 0;
  c.by_token = __shfl_sync(kAllLanes, static_cast<int>(c.by_token), 0) != 0;
  __syncwarp();
}

__device__ inline void warp_link(Candidates& c, SamplerKind kind, DeviceSamplerState& s) {
  const SamplingParams& p = s.params;
  if (c.sorted && kind == SamplerKind::kTopP) {
    return warp_keep_top_p(c, p.top_p, p.min_keep);
  }
  if (c.sorted && kind == SamplerKind::kMinP) {
    return warp_keep_min_p(c, s.log_min_p, p.min_keep);
  }
  if (kind == SamplerKind::kTemperature && !(p.dynatemp_range > 0.0F)) {
    const TemperatureScale scale = temperature_scale(p.temperature, warp_max_logit(c));
    if (!scale.greedy) return warp_divide(c, scale.divisor);
  }
  warp_serial_link(c, kind, s);
}

// draw_softmax() with the number u. -1: nothing can be drawn.
__device__ inline TokenId warp_draw(Candidates& c, double u) {
  if (c.size == 0) return -1;
  const float best = warp_max_logit(c);
  if (!(best > -kInfinity)) return -1;
  if (c.size == 1) return c.data[0].token;
  warp_exp(c, best);
  auto* running = reinterpret_cast<double*>(c.scratch);  // the sums up to each candidate
  double sum = 0.0;
#pragma unroll 4
  for (std::int32_t i = 0; i < c.size; ++i) {
    sum += c.data[i].p;
    if (static_cast<std::int32_t>(threadIdx.x % 32U) == i % 32) running[i] = sum;
  }
  __syncwarp();
  const double target = sum * u;
  for (std::int32_t base = 0; base < c.size; base += 32) {
    const std::int32_t i = base + static_cast<std::int32_t>(threadIdx.x % 32U);
    const unsigned lanes =
        __ballot_sync(kAllLanes, i < c.size && running[i] >= target && c.data[i].p > 0.0F);
    if (lanes != 0U) return c.data[base + __ffs(static_cast<int>(lanes)) - 1].token;
  }
  return -1;
}

// The chain after the selection, and the draw. One warp; every lane has the answer.
__device__ inline TokenId warp_chain(DeviceSamplerState& s, Shared& shared, std::int32_t n) {
  Candidates c{shared.list, shared.scratch, n, true, false};
  const std::int32_t n_links = s.n_links;
  for (std::int32_t i = 0; i < n_links; ++i) warp_link(c, s.links[i], s);
  return warp_draw(c, shared.u);
}

}  // namespace unpaced
