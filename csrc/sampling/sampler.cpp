#include "sampling/sampler.h"

#include <algorithm>

#include "sampling/arithmetic/float_math.h"
#include "sampling/candidates/draw.h"
#include "sampling/candidates/sort.h"
#include "sampling/chain/min_p.h"
#include "sampling/chain/temperature.h"
#include "sampling/chain/top_k.h"
#include "sampling/chain/top_n_sigma.h"
#include "sampling/chain/top_p.h"
#include "sampling/chain/typical_p.h"
#include "sampling/chain/xtc.h"

namespace unpaced {

Sampler::Sampler(std::int32_t n_vocab, std::int32_t n_ctx)
    : n_vocab_(n_vocab),
      repetition_(n_vocab, n_ctx),
      row_(n_vocab),
      candidates_(n_vocab),
      scratch_(n_vocab),
      page_sums_(row_.n_pages()) {}

void Sampler::reset(const SamplingParams& params, std::span<const LogitBias> biases,
                    const DryBreakers* breakers, std::span<const TokenId> prompt,
                    Infill* infill) noexcept {
  params_ = params;
  biases_ = biases;
  log_min_p_ = params.min_p > 0.0F ? log_f32(params.min_p) : 0.0F;
  mirostat_ = {params.mirostat_tau, params.mirostat_eta, 2.0F * params.mirostat_tau};
  infill_ = infill;
  adaptive_p_.reset(params.adaptive_target, params.adaptive_decay);
  repetition_.reset(params, breakers, prompt);
  rng_.seed(params.seed);
  plan_chain();
}

void Sampler::plan_chain() noexcept {
  n_links_ = 0;
  if (params_.mirostat != 0) {  // replaces the chain by {temperature, mirostat}
    params_.dynatemp_range = 0.0F;
    if (is_active(SamplerKind::kTemperature)) links_[n_links_++] = SamplerKind::kTemperature;
    return;
  }
  const std::int32_t n_chain = std::clamp(params_.n_chain, 0, kMaxChainLength);
  for (std::int32_t i = 0; i < n_chain; ++i) {
    const SamplerKind kind = params_.chain[i];
    if (!is_active(kind)) continue;
    if (kind == SamplerKind::kXtc) xtc_rngs_[n_links_].seed(params_.seed);
    links_[n_links_++] = kind;
  }
}

std::int32_t Sampler::first_xtc() const noexcept {
  const auto found = std::find(links_, links_ + n_links_, SamplerKind::kXtc);
  return found == links_ + n_links_ ? 0 : static_cast<std::int32_t>(found - links_);
}

SamplerStreams Sampler::streams() const noexcept {
  return {rng_, xtc_rngs_[first_xtc()], mirostat_};
}

void Sampler::set_streams(const SamplerStreams& streams) noexcept {
  rng_ = streams.rng;
  xtc_rngs_[first_xtc()] = streams.xtc;
  mirostat_ = streams.mirostat;
}

bool Sampler::is_active(SamplerKind kind) const noexcept {
  switch (kind) {
    case SamplerKind::kPenalties:
      return repetition_.has_penalties();
    case SamplerKind::kDry:
      return repetition_.has_dry();
    case SamplerKind::kTopNSigma:
      return params_.top_n_sigma > 0.0F;
    case SamplerKind::kTopK:
      return params_.top_k > 0;
    case SamplerKind::kTypicalP:
      return params_.typical_p < 1.0F;
    case SamplerKind::kTopP:
      return params_.top_p < 1.0F;
    case SamplerKind::kMinP:
      return params_.min_p > 0.0F;
    case SamplerKind::kXtc:
      return params_.xtc_probability > 0.0F && params_.xtc_threshold <= 0.5F;
    case SamplerKind::kTemperature:
      return params_.temperature != 1.0F || params_.dynatemp_range > 0.0F;
    case SamplerKind::kInfill:
      return infill_ != nullptr;
  }
  return false;
}

SampleResult Sampler::sample(const float* logits, std::span<const std::uint32_t> mask) noexcept {
  constexpr SampleResult kFailed = {-1, SampleStatus::kNonFinite};
  is_listed_ = false;
  list_ = {candidates_.data(), scratch_.data(), 0, false, false};
  if (!row_.bind(logits)) return kFailed;
  if (!mask.empty()) row_.apply_mask(mask);
  add_biases();
  if (!has_finite_logit()) return kFailed;
  for (std::int32_t i = 0; i < n_links_; ++i) {
    if (is_listed_) {
      apply_to_list(links_[i], xtc_rngs_[i]);
    } else {
      apply_to_row(links_[i], xtc_rngs_[i]);
    }
  }
  if (!has_finite_logit()) return kFailed;  // the penalties can overflow
  const TokenId token = draw();
  return token < 0 ? kFailed : SampleResult{token, SampleStatus::kOk};
}

void Sampler::add_biases() noexcept {
  if (biases_.empty()) return;
  for (const LogitBias& bias : biases_) {
    float& logit = row_.at(bias.token);
    logit = legal_logit(logit + bias.bias);
  }
  row_.refresh();
}

void Sampler::list_all_by_token() noexcept {
  const float* logits = row_.flatten();
  for (TokenId token = 0; token < n_vocab_; ++token) {
    candidates_[token] = {token, logits[token], 0.0F};
  }
  list_ = {candidates_.data(), scratch_.data(), n_vocab_, false, true};
  is_listed_ = true;
}

bool Sampler::has_finite_logit() const noexcept {
  return (is_listed_ ? max_logit(list_) : row_.max()) > -kInfinity;
}

void Sampler::list_all() noexcept {
  row_.select_top(n_vocab_, list_);
  is_listed_ = true;
}

void Sampler::apply_to_row(SamplerKind kind, Mt19937& xtc_rng) noexcept {
  switch (kind) {
    case SamplerKind::kPenalties:
      return repetition_.penalise(row_);
    case SamplerKind::kDry:
      return repetition_.apply_dry(row_);
    case SamplerKind::kTopNSigma:
      return ban_below_n_sigma(row_, params_.top_n_sigma);
    case SamplerKind::kTopK:
      row_.select_top(std::min(params_.top_k, n_vocab_), list_);
      is_listed_ = true;
      return;
    case SamplerKind::kTopP:
      keep_top_p(row_, params_.top_p, params_.min_keep, list_);
      is_listed_ = true;
      return;
    case SamplerKind::kMinP:
      keep_min_p(row_, params_.min_p, log_min_p_, params_.min_keep, list_);
      is_listed_ = true;
      return;
    case SamplerKind::kXtc:
      if (!xtc_strikes(n_vocab_, params_.xtc_probability, xtc_rng)) return;
      list_all();
      return exclude_top_choices(list_, params_.xtc_threshold, params_.min_keep);
    case SamplerKind::kTemperature:
      if (!(params_.dynatemp_range > 0.0F)) return apply_temperature(row_, params_.temperature);
      break;
    case SamplerKind::kTypicalP:
    case SamplerKind::kInfill:
      break;
  }
  list_all();  // the rest sorts first
  apply_to_list(kind, xtc_rng);
}

void Sampler::apply_to_list(SamplerKind kind, Mt19937& xtc_rng) noexcept {
  switch (kind) {
    case SamplerKind::kPenalties:
      return repetition_.penalise(list_);
    case SamplerKind::kDry:
      return repetition_.apply_dry(list_);
    case SamplerKind::kTopNSigma:
      return ban_below_n_sigma(list_, params_.top_n_sigma);
    case SamplerKind::kTopK:
      return keep_top_k(list_, params_.top_k);
    case SamplerKind::kTypicalP:
      return keep_typical_p(list_, params_.typical_p, params_.min_keep);
    case SamplerKind::kTopP:
      return keep_top_p(list_, params_.top_p, params_.min_keep);
    case SamplerKind::kMinP:
      return keep_min_p(list_, params_.min_p, log_min_p_, params_.min_keep);
    case SamplerKind::kXtc:
      if (xtc_strikes(list_.size, params_.xtc_probability, xtc_rng)) {
        exclude_top_choices(list_, params_.xtc_threshold, params_.min_keep);
      }
      return;
    case SamplerKind::kTemperature:
      return apply_dynamic_temperature(list_, params_.temperature, params_.dynatemp_range,
                                       params_.dynatemp_exponent);
    case SamplerKind::kInfill:
      return infill_->apply(list_);
  }
}

TokenId Sampler::draw() noexcept {
  if (params_.mirostat == 0 && params_.adaptive_p) {
    if (!is_listed_) list_all_by_token();  // the sums depend on the order
    return list_.data[adaptive_p_.draw(list_, rng_)].token;
  }
  if (params_.mirostat == 0 && !is_listed_) {
    row_draw_ = draw_softmax(row_, page_sums_, rng_);
    return row_draw_.token;
  }
  if (!is_listed_) list_all();
  const std::int32_t i = params_.mirostat == 0   ? draw_softmax(list_, rng_)
                         : params_.mirostat == 1 ? draw_mirostat_1(list_, mirostat_, n_vocab_, rng_)
                                                 : draw_mirostat_2(list_, mirostat_, rng_);
  return i < 0 ? -1 : list_.data[i].token;
}

std::span<const Candidate> Sampler::candidates(std::int32_t n_max) noexcept {
  const std::int32_t n = std::max(n_max, 0);
  if (is_listed_) {
    sort_by_logit(list_);
  } else {
    row_.select_top(std::clamp(n, 1, n_vocab_), list_);
    for (std::int32_t i = 0; i < list_.size; ++i) {
      Candidate& c = list_.data[i];
      c.p = static_cast<float>(exp_f32(c.logit - row_draw_.best) / row_draw_.sum);
    }
  }
  const std::int32_t n_listed = std::min(n, list_.size);
  return {list_.data, static_cast<std::size_t>(n_listed)};
}

}  // namespace unpaced
