// What ggml's mat-vecs make of gate and up (mmvq.cu, unary.cuh). Quotients, powers and tanh are the
// approximations that -use_fast_math makes of them, there as here.
#pragma once

#include "device/kernels/mat_vec.h"
#include "device/kernels/weights/pinned_float.h"

namespace unpaced::mat_vec {

__device__ __forceinline__ float silu(float x) { return x / (1.0F + expf(-x)); }

__device__ __forceinline__ float gelu(float x) {
  const float cubic = fused(x, product(x, 0.044715F), 1.0F);
  const float inner = product(cubic, product(x, 0.79788456080286535587989211986876F));
  return product(product(x, 0.5F), sum(tanhf(inner), 1.0F));
}

__device__ __forceinline__ float gated(float up, float gate, GluKind kind, float limit) {
  switch (kind) {
    case GluKind::kSwiglu:
      return product(up, silu(gate));
    case GluKind::kGeglu:
      return product(up, gelu(gate));
    case GluKind::kSwigluOai: {
      const float x = fminf(gate, 7.0F);
      const float g = fmaxf(fminf(up, 7.0F), -7.0F);
      return product(x / (1.0F + expf(product(-x, 1.702F))), sum(1.0F, g));
    }
    case GluKind::kSwigluClamp:
      return product(silu(fminf(gate, limit)), fmaxf(fminf(up, limit), -limit));
  }
  return 0;
}

}  // namespace unpaced::mat_vec
