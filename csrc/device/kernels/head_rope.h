// Positions turned into the heads of Q and K, and the rows of K and V written into the cache, of
// one token or a few, in one launch.
//
// Bits: where heads have a norm, rms_norm_mul_rope_f32<256> of ggml-cuda's rope.cu; else rope_norm
// or rope_neox. Q's scale as scale_f32 of scale.cu. K's row as the same kernels write it into an
// F16 cache, V's as k_set_rows of set-rows.cu.
#pragma once

#include <cstdint>
#include <string>

#include "device/kernels/card.h"

struct CUstream_st;  // a cudaStream_t points to it; the tests without a GPU have no CUDA

namespace unpaced {

// How positions become angles: the operation's parameters, as ggml_cuda_op_rope_impl() takes them.
struct RopeAngles {
  const std::int32_t* position = nullptr;  // of each token
  const float* factors = nullptr;          // of the frequencies; nullptr: none
  std::int32_t n_dims = 0;                 // the head's values that are turned, from the first on
  bool neox = false;                       // pairs are n_dims / 2 apart, not neighbours
  float theta_scale = 0;                   // powf(frequency base, -2 / n_dims), the host's
  float freq_scale = 0;
  float ext_factor = 0;
  float attn_factor = 0;
  float corr_low = 0;
  float corr_high = 0;
};

// Heads that lie `stride` floats apart.
struct RopeHeads {
  const float* input = nullptr;
  std::int64_t stride = 0;
  std::int64_t token_stride = 0;  // from a token's heads to the next one's, in floats
  std::int32_t n_heads = 0;
  const float* norm_weight = nullptr;  // nullptr: no norm
  float epsilon = 0;
  bool has_scale = false;
  float scale = 0;
  float scale_bias = 0;
  float* out = nullptr;           // heads and tokens behind one another; nullptr: into the cache
  void* cache = nullptr;          // F16 rows
  std::int64_t cache_stride = 0;  // from a row to the next, in values
  const std::int64_t* row = nullptr;  // which, of each token
};

struct HeadRope {
  RopeAngles angles;
  std::int32_t head_size = 0;
  std::int32_t n_tokens = 1;
  bool next_is_ours = false;  // the next kernel waits before it reads (launch.cuh)
  RopeHeads query;
  RopeHeads key;
  RopeHeads value;  // neither turned nor normalised
};

// Why there is no kernel, as a sentence; empty: there is.
[[nodiscard]] std::string why_no_head_rope(const HeadRope& rope);

// One launch. Throws std::runtime_error if it cannot be made.
void enqueue_head_rope(const HeadRope& rope, const Card& card, CUstream_st* stream);

}  // namespace unpaced
