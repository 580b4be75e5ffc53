// The sampling chain of one slot: logits in, one token out, with llama-server's results.
//
// Source of order, formulas and random stream: llama.cpp src/llama-sampler.cpp and
// common/sampling.cpp at commit 0c1e57098. While nothing has cut the vocabulary the chain works on
// the row itself (logit_row.h, row_filters.h); the first link that cuts lists the survivors, and
// the rest of the chain is the arithmetic shared with the device, on that list.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/arithmetic/mt19937.h"
#include "sampling/candidates/candidates.h"
#include "sampling/chain/adaptive_p.h"
#include "sampling/chain/dry_breakers.h"
#include "sampling/chain/infill.h"
#include "sampling/chain/mirostat.h"
#include "sampling/chain/repetition.h"
#include "sampling/chain/row_filters.h"
#include "sampling/chain/sampling_params.h"
#include "sampling/row/logit_row.h"
#include "sampling/sampler_streams.h"

namespace unpaced {

enum class SampleStatus : std::uint8_t {
  kOk,
  kNonFinite,  // a logit is NaN or +inf, or every token is banned
};

struct SampleResult {
  TokenId token;  // -1 unless kOk
  SampleStatus status;
};

// Takes all its memory in the constructor: 36 bytes a token of the vocabulary, 28 a token of the
// context, 45 KB besides. Decode thread only.
class Sampler {
 public:
  Sampler(std::int32_t n_vocab, std::int32_t n_ctx);  // both at least 1
  Sampler(Sampler&&) noexcept = default;

  // Starts a generation: seeds the random streams and shows the prompt to the penalties. Biases,
  // breakers and infill (both may be null) are borrowed until the next reset. Tokens must lie in
  // [0, n_vocab). Without `infill` that link does nothing.
  void reset(const SamplingParams& params, std::span<const LogitBias> biases,
             const DryBreakers* breakers, std::span<const TokenId> prompt,
             Infill* infill = nullptr) noexcept;

  // Draws a token. logits: n_vocab of them, not modified, not kept. Does not accept the token.
  // mask: empty, or one bit a token (bit i % 32 of word i / 32): a token without its bit has the
  // logit -inf before anything reads it. Each call takes its own random numbers.
  SampleResult sample(const float* logits, std::span<const std::uint32_t> mask = {}) noexcept;

  // Appends a token to the text that the penalties see.
  void accept(TokenId token) noexcept {
    repetition_.accept(token);
    adaptive_p_.accept(token);
  }

  // After sample() and while its logits exist: the at most n_max best tokens that survived the
  // chain, with their final probabilities, descending. Sorts on demand.
  std::span<const Candidate> candidates(std::int32_t n_max = INT32_MAX) noexcept;

  // For a backend that carries on with this generation and gives it back: what reset() made of the
  // request, and the state that sampling moves.
  const SamplingParams& params() const noexcept { return params_; }
  std::span<const SamplerKind> links() const noexcept {
    return {links_, static_cast<std::size_t>(n_links_)};
  }
  std::span<const LogitBias> biases() const noexcept { return biases_; }
  float log_min_p() const noexcept { return log_min_p_; }
  const Repetition& repetition() const noexcept { return repetition_; }
  SamplerStreams streams() const noexcept;
  void set_streams(const SamplerStreams& streams) noexcept;

 private:
  void plan_chain() noexcept;
  std::int32_t first_xtc() const noexcept;
  bool is_active(SamplerKind kind) const noexcept;
  void add_biases() noexcept;
  void apply_to_row(SamplerKind kind, Mt19937& xtc_rng) noexcept;
  void apply_to_list(SamplerKind kind, Mt19937& xtc_rng) noexcept;
  void list_all() noexcept;
  void list_all_by_token() noexcept;
  bool has_finite_logit() const noexcept;
  TokenId draw() noexcept;

  std::int32_t n_vocab_;
  SamplingParams params_{};
  std::span<const LogitBias> biases_;
  float log_min_p_ = 0.0F;
  std::int32_t n_links_ = 0;
  SamplerKind links_[kMaxChainLength] = {};  // those of the chain that do something
  Mt19937 rng_;
  Mt19937 xtc_rngs_[kMaxChainLength];  // XTC at position i of links_ has a stream of its own
  Mirostat mirostat_{};
  AdaptiveP adaptive_p_;
  Infill* infill_ = nullptr;
  Repetition repetition_;

  LogitRow row_;
  bool is_listed_ = false;  // whether the survivors are in list_; else they are row_
  Candidates list_{};
  RowDraw row_draw_{};  // if !is_listed_
  std::vector<Candidate> candidates_;
  std::vector<Candidate> scratch_;
  std::vector<double> page_sums_;
};

}  // namespace unpaced
