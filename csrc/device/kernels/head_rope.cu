#include "device/kernels/ggml_device.cuh"
#include "device/kernels/head_rope.h"
#include "device/kernels/launch.cuh"

namespace unpaced {
namespace {

// Heads with a norm have what ggml has: the sum of squares hangs on it. For others a thread a pair
// of most heads' values is enough, and the more of them are at once on the card.
template <bool kNorm>
constexpr int kThreads = kNorm ? 256 : 64;

__device__ float yarn_ramp(float low, float high, int i0) {
  const float y = (i0 / 2 - low) / max(0.001f, high - low);
  return 1.0f - min(1.0f, max(0.0f, y));
}

struct Turn {
  float cos_theta;
  float sin_theta;
};

// rope_yarn<true>() of rope.cu and what stands before it.
template <bool kFactors>
__device__ Turn turn_of(const RopeAngles& angles, int position, int i0) {
  const float theta_base = position * powf(angles.theta_scale, i0 / 2.0f);
  const float factor = kFactors ? angles.factors[i0 / 2] : 1.0f;
  const float theta_extrap = theta_base / factor;
  const float theta_interp = angles.freq_scale * theta_extrap;
  float theta = theta_interp;
  float mscale = angles.attn_factor;
  if (angles.ext_factor != 0.0f) {
    const float ramp_mix = yarn_ramp(angles.corr_low, angles.corr_high, i0) * angles.ext_factor;
    theta = theta_interp * (1 - ramp_mix) + theta_extrap * ramp_mix;
    mscale *= 1.0f + 0.1f * logf(1.0f / angles.freq_scale);
  }
  return {cosf(theta) * mscale, sinf(theta) * mscale};
}

// A product is rounded by itself, or not at all within a sum: which of two is the compiler's
// choice, and another one in each of ggml's kernels.
__device__ float turned_first(const Turn& turn, float x0, float x1) {
  return __fmaf_rn(x0, turn.cos_theta, -__fmul_rn(x1, turn.sin_theta));
}

template <bool kNorm>
__device__ float turned_second(const Turn& turn, float x0, float x1) {
  if constexpr (kNorm) return __fmaf_rn(x1, turn.cos_theta, __fmul_rn(x0, turn.sin_theta));
  return __fmaf_rn(x0, turn.sin_theta, __fmul_rn(x1, turn.cos_theta));
}

__device__ int token() { return static_cast<int>(blockIdx.y); }

__device__ const float* input_of(const RopeHeads& heads, int head) {
  return heads.input + token() * heads.token_stride + head * heads.stride;
}

// A head's values where they go.
class HeadOutput {
 public:
  __device__ HeadOutput(const RopeHeads& heads, int head, int head_size) : heads_(heads) {
    const std::int64_t offset = static_cast<std::int64_t>(head) * head_size;
    if (heads.out != nullptr) {
      out_ = heads.out + static_cast<std::int64_t>(token()) * heads.n_heads * head_size + offset;
    } else {
      cache_ = static_cast<half*>(heads.cache) + heads.row[token()] * heads.cache_stride + offset;
    }
  }

  __device__ void put(int i, float value) const {
    if (cache_ != nullptr) {
      cache_[i] = ggml_cuda_cast<half>(value);
    } else if (heads_.has_scale) {
      out_[i] = heads_.scale * value + heads_.scale_bias;
    } else {
      out_[i] = value;
    }
  }

 private:
  const RopeHeads& heads_;
  float* out_ = nullptr;
  half* cache_ = nullptr;
};

__device__ float norm_scale(const RopeHeads& heads, const float* x, int head_size, float* sums) {
  float tmp = 0.0f;
  for (int col = threadIdx.x; col < head_size; col += kThreads<true>) {
    const float xi = x[col];
    tmp += xi * xi;
  }
  tmp = block_reduce<block_reduce_method::SUM, kThreads<true>>(tmp, sums);
  return rsqrtf(tmp / head_size + heads.epsilon);
}

template <bool kNorm, bool kFactors>
__device__ void turn_head(const HeadRope& rope, const RopeHeads& heads, int head, float* sums) {
  const float* x = input_of(heads, head);
  const float scale = kNorm ? norm_scale(heads, x, rope.head_size, sums) : 0.0f;
  const RopeAngles& angles = rope.angles;
  const HeadOutput out(heads, head, rope.head_size);
  const int position = angles.position[token()];
  for (int i0 = 2 * static_cast<int>(threadIdx.x); i0 < rope.head_size; i0 += 2 * kThreads<kNorm>) {
    const bool turned = i0 < angles.n_dims;
    const int ix0 = angles.neox && turned ? i0 / 2 : i0;
    const int ix1 = angles.neox && turned ? i0 / 2 + angles.n_dims / 2 : i0 + 1;
    float x0 = x[ix0];
    float x1 = x[ix1];
    if constexpr (kNorm) {
      x0 = scale * x0 * heads.norm_weight[ix0];
      x1 = scale * x1 * heads.norm_weight[ix1];
    }
    if (!turned) {
      out.put(ix0, x0);
      out.put(ix1, x1);
      continue;
    }
    const Turn turn = turn_of<kFactors>(angles, position, i0);
    out.put(ix0, turned_first(turn, x0, x1));
    out.put(ix1, turned_second<kNorm>(turn, x0, x1));
  }
}

template <bool kNorm>
__device__ void copy_head(const HeadRope& rope, int head) {
  const float* x = input_of(rope.value, head);
  const HeadOutput out(rope.value, head, rope.head_size);
  for (int i = threadIdx.x; i < rope.head_size; i += kThreads<kNorm>) out.put(i, x[i]);
}

// A block a head: Q's, then K's, then V's; y: a token.
template <bool kNorm, bool kFactors>
__global__ void __launch_bounds__(kThreads<kNorm>) head_rope(const HeadRope rope) {
  __shared__ float sums[32];
  let_later_kernels_start(rope.next_is_ours);
  await_earlier_kernels();
  const int head = static_cast<int>(blockIdx.x);
  const int n_queries = rope.query.n_heads;
  const int n_turned = n_queries + rope.key.n_heads;
  if (head < n_queries) {
    turn_head<kNorm, kFactors>(rope, rope.query, head, sums);
  } else if (head < n_turned) {
    turn_head<kNorm, kFactors>(rope, rope.key, head - n_queries, sums);
  } else {
    copy_head<kNorm>(rope, head - n_turned);
  }
  end_writes(rope.next_is_ours);
}

}  // namespace

void enqueue_head_rope(const HeadRope& rope, const Card& card, CUstream_st* stream) {
  const auto n_heads =
      static_cast<unsigned>(rope.query.n_heads + rope.key.n_heads + rope.value.n_heads);
  const bool has_norm = rope.query.norm_weight != nullptr;
  const bool has_factors = rope.angles.factors != nullptr;
  const auto kernel = has_norm ? (has_factors ? head_rope<true, true> : head_rope<true, false>)
                               : (has_factors ? head_rope<false, true> : head_rope<false, false>);
  const auto n_threads = static_cast<unsigned>(has_norm ? kThreads<true> : kThreads<false>);
  launch(kernel, {dim3(n_heads, static_cast<unsigned>(rope.n_tokens)), dim3(n_threads), 0}, card,
         stream, rope);
}

}  // namespace unpaced
