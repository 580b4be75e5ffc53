// What a request asks of the sampling core. Plain data: it crosses threads inside a RequestSpec
// and, on CUDA, is uploaded as is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/token.h"

namespace unpaced {

// Links of the chain, in llama-server's default order. Logit bias always comes first and the final
// draw last: from the distribution, or by adaptive-p if asked for. Mirostat replaces all of it by
// {temperature, mirostat}.
enum class SamplerKind : std::uint8_t {
  kPenalties = 0,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
  kInfill,  // not in the default chain
};
inline constexpr std::int32_t kMaxChainLength = 16;

struct LogitBias {
  TokenId token;
  float bias;  // added to the logit; -inf bans the token
};

struct SamplingParams {
  std::uint32_t seed = 0;  // of mt19937; the caller resolves "random" before
  float temperature = 0.8F;
  float dynatemp_range = 0.0F;
  float dynatemp_exponent = 1.0F;
  std::int32_t top_k = 40;  // <= 0: off
  float top_p = 0.95F;
  float min_p = 0.05F;
  float typical_p = 1.0F;
  float top_n_sigma = -1.0F;
  float xtc_probability = 0.0F;
  float xtc_threshold = 0.1F;
  std::int32_t repeat_last_n = 64;
  float repeat_penalty = 1.0F;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  float dry_multiplier = 0.0F;
  float dry_base = 1.75F;
  std::int32_t dry_allowed_length = 2;
  std::int32_t dry_penalty_last_n = 64;  // -1: whole context
  std::int32_t mirostat = 0;             // 0, 1 or 2
  float mirostat_tau = 5.0F;
  float mirostat_eta = 0.1F;
  bool adaptive_p = false;  // whether it makes the draw
  float adaptive_target = -1.0F;
  float adaptive_decay = 0.9F;
  std::int32_t min_keep = 0;
  std::int32_t n_chain = 9;
  SamplerKind chain[kMaxChainLength] = {
      SamplerKind::kPenalties, SamplerKind::kDry,      SamplerKind::kTopNSigma,
      SamplerKind::kTopK,      SamplerKind::kTypicalP, SamplerKind::kTopP,
      SamplerKind::kMinP,      SamplerKind::kXtc,      SamplerKind::kTemperature,
  };
};
static_assert(std::is_trivially_copyable_v<SamplingParams>);

}  // namespace unpaced
