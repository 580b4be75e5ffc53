// llama.cpp's own sampler chain for our parameters, put together as llama-server does it
// (common/sampling.cpp at 0c1e57098), for comparison.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llama.h"
#include "sampling/chain/sampling_params.h"

namespace unpaced::test {

class LlamaReference {
 public:
  // vocab: for infill and DRY's sequence breakers; null is allowed if there are none.
  LlamaReference(std::int32_t n_vocab, const llama_vocab* vocab, const SamplingParams& params,
                 std::span<const LogitBias> biases, std::span<const std::string> breakers)
      : candidates_(static_cast<std::size_t>(n_vocab)),
        chain_(llama_sampler_chain_init({.no_perf = true})) {
    if (!biases.empty()) {
      std::vector<llama_logit_bias> llama_biases;
      for (const LogitBias& b : biases) llama_biases.push_back({b.token, b.bias});
      add(llama_sampler_init_logit_bias(n_vocab, static_cast<std::int32_t>(llama_biases.size()),
                                        llama_biases.data()));
    }
    if (params.mirostat != 0) {
      add(llama_sampler_init_temp(params.temperature));
      add(params.mirostat == 1
              ? llama_sampler_init_mirostat(n_vocab, params.seed, params.mirostat_tau,
                                            params.mirostat_eta, 100)
              : llama_sampler_init_mirostat_v2(params.seed, params.mirostat_tau,
                                               params.mirostat_eta));
      return;
    }
    for (std::int32_t i = 0; i < params.n_chain; ++i) {
      add(make(params.chain[i], n_vocab, vocab, params, breakers));
    }
    add(params.adaptive_p ? llama_sampler_init_adaptive_p(params.adaptive_target,
                                                          params.adaptive_decay, params.seed)
                          : llama_sampler_init_dist(params.seed));
  }
  ~LlamaReference() { llama_sampler_free(chain_); }
  LlamaReference(const LlamaReference&) = delete;
  LlamaReference& operator=(const LlamaReference&) = delete;

  // Builds the candidate array, as llama-server does for every token, and applies the chain.
  TokenId sample(const float* logits) {
    const auto n_vocab = static_cast<TokenId>(candidates_.size());
    for (TokenId token = 0; token < n_vocab; ++token) {
      candidates_[static_cast<std::size_t>(token)] = {token, logits[token], 0.0F};
    }
    left_ = {candidates_.data(), candidates_.size(), -1, false};
    llama_sampler_apply(chain_, &left_);
    return left_.selected < 0 ? -1 : left_.data[left_.selected].id;
  }

  void accept(TokenId token) { llama_sampler_accept(chain_, token); }

  bool has_nan() const {
    return std::ranges::any_of(left(), [](const llama_token_data& c) { return c.p != c.p; });
  }

  // After sample(): what survived, in llama.cpp's order.
  std::span<const llama_token_data> left() const { return {left_.data, left_.size}; }

 private:
  void add(llama_sampler* sampler) { llama_sampler_chain_add(chain_, sampler); }

  static llama_sampler* make(SamplerKind kind, std::int32_t n_vocab, const llama_vocab* vocab,
                             const SamplingParams& p, std::span<const std::string> breakers) {
    const auto min_keep = static_cast<std::size_t>(p.min_keep);
    switch (kind) {
      case SamplerKind::kPenalties:
        return llama_sampler_init_penalties(n_vocab, p.repeat_last_n, p.repeat_penalty,
                                            p.frequency_penalty, p.presence_penalty);
      case SamplerKind::kDry: {
        std::vector<const char*> strings;
        for (const std::string& breaker : breakers) strings.push_back(breaker.c_str());
        return llama_sampler_init_dry(vocab, p.dry_multiplier, p.dry_base, p.dry_allowed_length,
                                      p.dry_penalty_last_n, strings.data(), strings.size());
      }
      case SamplerKind::kTopNSigma:
        return llama_sampler_init_top_n_sigma(p.top_n_sigma);
      case SamplerKind::kTopK:
        return llama_sampler_init_top_k(p.top_k);
      case SamplerKind::kTypicalP:
        return llama_sampler_init_typical(p.typical_p, min_keep);
      case SamplerKind::kTopP:
        return llama_sampler_init_top_p(p.top_p, min_keep);
      case SamplerKind::kMinP:
        return llama_sampler_init_min_p(p.min_p, min_keep);
      case SamplerKind::kXtc:
        return llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, min_keep, p.seed);
      case SamplerKind::kTemperature:
        return llama_sampler_init_temp_ext(p.temperature, p.dynatemp_range, p.dynatemp_exponent);
      case SamplerKind::kInfill:
        return llama_sampler_init_infill(vocab);
    }
    return nullptr;
  }

  std::vector<llama_token_data> candidates_;
  llama_token_data_array left_{};
  llama_sampler* chain_;
};

}  // namespace unpaced::test
